"""Windows, loops, phantom words and long utterances, without a model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.speech import silence
from units.engines import whisper_guard as guard
from units.messages import EAR_RATE, Float32

SENTENCE = list(range(100, 112))


def tone(seconds: float) -> Float32:
    return np.full(int(seconds * EAR_RATE), 0.5, np.float32)


@pytest.mark.parametrize(("seconds", "window"), [(0.2, 10.0), (7.0, 10.0), (8.0, 11.0), (29.0, 30.0)])
def test_the_window_has_a_floor_a_tail_and_a_ceiling(seconds: float, window: float) -> None:
    assert guard.window_s(int(seconds * EAR_RATE)) == window


def test_a_sentence_said_once_is_no_loop() -> None:
    assert not guard.may_loop(SENTENCE, cap=40)


@pytest.mark.parametrize("again", [SENTENCE, SENTENCE[:6]], ids=["whole", "begun"])
def test_a_sentence_said_again_is_suspicious(again: list[int]) -> None:
    assert guard.may_loop(SENTENCE + again, cap=40)


def test_a_transcript_that_was_cut_off_is_suspicious() -> None:
    assert guard.may_loop(SENTENCE, cap=len(SENTENCE))


def test_ten_times_no_is_believed() -> None:
    assert not guard.loops(", ".join(["no"] * 10), [1, 2] * 10, cap=45)


def test_forty_times_thank_you_is_not() -> None:
    assert guard.loops("Thank you. " * 40, [1, 2, 3] * 40, cap=300)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one two three", "one two three"),
        ("no no", "no no"),
        ("you you you you", "you"),
        ("Thank you. Thank you. Thank you. Thank", "Thank you."),
        ("so it was and it was and it was and", "so it was and"),
        ("a b c d a b c d a b c d e", "a b c d e"),
        ("", ""),
    ],
)
def test_a_loop_is_said_once(text: str, kept: str) -> None:
    assert guard.without_repetition(text) == kept


# Measured with whisper-base and whisper-tiny.en: (no speech probability, average log probability).
@pytest.mark.parametrize(
    "measured",
    [(0.89, -0.61), (0.73, -1.78), (0.60, -1.93), (0.84, -2.44), (0.65, -1.94), (0.64, -1.78), (0.94, -0.44)],
    ids=["silence", "pink", "clicks", "hum", "tone", "cough", "silence in full"],
)
def test_words_on_noise_are_phantoms(measured: tuple[float, float]) -> None:
    assert guard.nothing_said(*measured)


@pytest.mark.parametrize(
    "measured",
    [(0.01, -0.2), (0.54, -0.83), (0.45, -1.23), (0.63, -0.21), (0.08, -0.7), (0.5, -0.66)],
    ids=["thank you", "stop", "stop bare", "no no no", "muffled", "no 183 ms"],
)
def test_words_that_were_said_are_not(measured: tuple[float, float]) -> None:
    assert not guard.nothing_said(*measured)


def test_only_what_nobody_could_hear_is_silent() -> None:
    assert guard.silent(silence(1))
    assert guard.silent(silence(0))
    assert not guard.silent(tone(0.1) * 0.001)


def test_a_short_word_gets_silence_in_front() -> None:
    short = guard.padded(tone(0.2))
    assert short.size == int(0.5 * EAR_RATE)
    assert not short[: int(0.3 * EAR_RATE)].any()
    assert guard.padded(tone(1.0)).size == EAR_RATE


def test_an_utterance_that_fits_stays_whole() -> None:
    assert [piece.size for piece in guard.pieces(tone(27))] == [27 * EAR_RATE]


def test_a_monologue_is_cut_in_its_pauses_and_nothing_is_lost() -> None:
    speech = tone(70)
    for pause in (20, 45):
        speech[int(pause * EAR_RATE) : int((pause + 0.5) * EAR_RATE)] = 0
    cut = list(guard.pieces(speech))
    assert np.array_equal(np.concatenate(cut), speech)
    assert all(piece.size <= 27 * EAR_RATE for piece in cut)
    assert [round(piece.size / EAR_RATE) for piece in cut] == [20, 25, 25]


def test_the_cap_leaves_room_for_fast_speech_and_none_for_loops() -> None:
    assert 7 * 10 < guard.token_cap(10 * EAR_RATE, "en") < 14 * 10
    assert guard.token_cap(10 * EAR_RATE, "hi") > 200
    assert guard.token_cap(60 * EAR_RATE, "hi") <= 440
