from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from units.messages import Transcribed, TranscriptDelta, TranscriptFinal, TranscriptGuess
from units.stages.notifier import notify


def live(text: str, turn: int = 1) -> Transcribed:
    return Transcribed(turn, 0, text, False, 1.0)


def final(text: str, turn: int = 1, revision: int = 1) -> Transcribed:
    return Transcribed(turn, revision, text, True, 1.0)


def deltas(*hypotheses: Transcribed) -> list[str]:
    return [each.text for each in notify(hypotheses) if isinstance(each, TranscriptDelta)]


def test_words_are_announced_once_two_hypotheses_agree() -> None:
    assert deltas(live("the cat"), live("the cat sat"), live("the cat sat on")) == ["the cat", " sat"]


def test_words_that_change_are_not_announced() -> None:
    assert deltas(live("the hat"), live("the cat"), live("the cat")) == ["the", " cat"]


def test_punctuation_and_case_do_not_count() -> None:
    assert deltas(live("the cat."), live("The cat, sat")) == ["The cat,"]


def test_a_recogniser_that_changes_its_mind_takes_nothing_back() -> None:
    assert deltas(live("a b"), live("a b"), live("x y"), live("x y")) == ["a b"]


def test_the_final_words_are_given_whole_even_when_empty() -> None:
    assert [*notify([live("the"), final("the cat"), final("", 2)])] == [
        TranscriptGuess(1, "the"),
        TranscriptFinal(1, 1, "the cat", 1.0),
        TranscriptFinal(2, 1, "", 1.0),
    ]


def test_each_turn_starts_afresh() -> None:
    assert deltas(live("a"), live("a"), live("a", 2), live("a b", 2)) == ["a", "a"]


_words = st.lists(st.sampled_from(["the", "cat", "Cat,", "sat.", "on"]), max_size=6).map(" ".join)


@given(st.lists(_words, max_size=6))
def test_deltas_only_ever_append(hypotheses: list[str]) -> None:
    shown = ""
    seen: list[Transcribed] = []
    for text in hypotheses:
        seen.append(live(text))
        now = "".join(deltas(*seen))
        assert now.startswith(shown)
        shown = now
