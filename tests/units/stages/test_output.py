from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from units.messages import (
    Begin,
    Finish,
    Sentence,
    TextDelta,
    TextFinished,
    Token,
    ToolCall,
    ToolCalled,
    Voice,
)
from units.stages.output import GROWING, PIECE_MAX, SENTENCES, Cutter, Pacing, process

VOICE = Voice("tone")


def processed(*tokens: str, voice: Voice | None = VOICE) -> list[Any]:
    return [*process([Begin(voice), *map(Token, tokens), Finish()])]


def sentences(*tokens: str) -> list[str]:
    return [each.text for each in processed(*tokens) if isinstance(each, Sentence)]


PIECES = [
    ("Hi. You", ["Hi. ", "You"]),
    ("Well, that is nice. And so on.", ["Well, that is nice. ", "And so on."]),
    (
        "First of all, this is long. Then more, and more.",
        ["First of all, ", "this is long. ", "Then more, and more."],
    ),
    ("Dr. Smith met Mr. Jones. They spoke.", ["Dr. Smith met Mr. Jones. ", "They spoke."]),
    ("It costs 3.50 euros. Cheap!", ["It costs 3.50 euros. ", "Cheap!"]),
    ("J. R. R. Tolkien wrote it. Yes.", ["J. R. R. Tolkien wrote it. ", "Yes."]),
    ('He said "Stop!" Then he left.', ['He said "Stop!" ', "Then he left."]),
    ("One\nTwo", ["One\n", "Two"]),
    ("你好。再见。", ["你好。", "再见。"]),
    ("1. Apples and so on", ["1. Apples and so on"]),
    ("e.g. this one. Fine.", ["e.g. this one. ", "Fine."]),
    ("No punctuation at all", ["No punctuation at all"]),
    ("What? Really? Yes!", ["What? ", "Really? ", "Yes!"]),
]


@pytest.mark.parametrize(("text", "pieces"), PIECES)
def test_text_is_cut_into_pieces_to_speak(text: str, pieces: list[str]) -> None:
    assert sentences(text) == pieces


@pytest.mark.parametrize(("text", "pieces"), PIECES)
def test_the_pieces_concatenate_to_the_text_however_it_is_streamed(text: str, pieces: list[str]) -> None:
    assert "".join(sentences(*text)) == "".join(pieces)


def test_the_unfinished_sentence_is_spoken_at_the_end() -> None:
    assert sentences("Hi. You") == ["Hi. ", "You"]


def test_the_unfinished_sentence_is_spoken_also_when_the_model_fails() -> None:
    outputs = [*process([Begin(VOICE), Token("Hi. You")])]
    assert [each.text for each in outputs if isinstance(each, Sentence)] == ["Hi. ", "You"]


def test_the_first_piece_is_a_clause_that_comes_before_the_sentence_is_complete() -> None:
    stream = process([Begin(VOICE), Token("First of all, "), Token("this is long. ")])
    assert next(stream) == TextDelta("First of all, ")
    assert next(stream) == Sentence("First of all, ", "First of all,", VOICE)


def test_without_punctuation_the_first_piece_is_cut_at_a_word() -> None:
    first, *_ = sentences("word " * 40)
    assert len(first) <= SENTENCES.first
    assert first.endswith(" ")


def test_no_piece_is_longer_than_the_limit() -> None:
    assert all(len(piece) <= PIECE_MAX for piece in sentences("word " * 400))
    assert all(len(piece) <= PIECE_MAX for piece in sentences("x" * 1000))


def test_every_token_is_announced_at_once() -> None:
    stream = process([Begin(VOICE), Token("a"), Token(" b")])
    assert [next(stream), next(stream)] == [TextDelta("a"), TextDelta(" b")]


def test_text_only_answers_are_not_cut() -> None:
    assert processed("Hi. You. ", voice=None) == [TextDelta("Hi. You. "), TextFinished(Finish())]


def test_calls_come_in_order_with_the_text_around_them() -> None:
    call = ToolCall("call_1", "f", "{}")
    outputs = [*process([Begin(None), Token("a"), call, Token("b"), Finish()])]
    assert outputs == [TextDelta("a"), ToolCalled(call), TextDelta("b"), TextFinished(Finish())]


def test_the_finish_is_passed_on() -> None:
    finish = Finish("length", 3, 4, 1)
    assert [*process([Begin(None), finish])] == [TextFinished(finish)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_thoughts_are_neither_shown_nor_said(size: int) -> None:
    text = "<think>The caller must never hear this, nor see it.</think>\nHello there. Bye."
    outputs = processed(*(text[start : start + size] for start in range(0, len(text), size)))
    assert "".join(each.text for each in outputs if isinstance(each, TextDelta)) == "Hello there. Bye."
    assert "".join(each.text for each in outputs if isinstance(each, Sentence)) == "Hello there. Bye."


def test_markup_is_shown_but_not_said() -> None:
    sentence = next(each for each in processed("This is **bold**.") if isinstance(each, Sentence))
    assert (sentence.text, sentence.spoken) == ("This is **bold**.", "This is bold.")


_text = st.text(alphabet="ab .,!?\n1。:；\"')…", max_size=200)


@given(_text, st.lists(st.integers(0, 200), max_size=6))
def test_no_text_is_lost_or_invented(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(place for place in cuts if place < len(text))})
    outputs = processed(*(text[start:end] for start, end in pairwise(places)))
    shown = "".join(each.text for each in outputs if isinstance(each, TextDelta))
    said = "".join(each.text for each in outputs if isinstance(each, Sentence))
    assert shown == text.lstrip()
    assert shown.startswith(said)
    assert shown[len(said) :].strip() == ""


@given(_text, st.sampled_from([SENTENCES, GROWING]))
def test_pieces_and_rest_concatenate_to_the_text(text: str, pacing: Pacing) -> None:
    pieces, rest = Cutter(pacing).cut(text)
    assert "".join(pieces) + rest == text


@given(_text)
def test_growing_pieces_keep_to_their_limits(text: str) -> None:
    pieces, rest = Cutter(GROWING).cut(text)
    limits = GROWING.limits()
    assert all(len(piece.rstrip()) <= next(limits) for piece in pieces)
    assert len(rest) <= next(limits)


def test_a_voice_that_is_slow_to_start_gets_a_short_piece_first() -> None:
    pieces, rest = Cutter(GROWING).cut(
        "I would be very happy to tell you about the sea and the old harbour of Oslo, where my friends"
    )
    assert pieces == ["I would be very happy ", "to tell you about the sea ", "and the old harbour of Oslo, "]
    assert rest == "where my friends"
