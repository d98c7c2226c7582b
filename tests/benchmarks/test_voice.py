"""How the parts of a turn are found in what the engines noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.timed_server import TimedSpeechToText, TimedTextToSpeech
from benchmarks.voice import Mark, chain, first_lengths, longest_pause, read_marks
from units.engines.base import EngineError, EngineSettings
from units.engines.scripted import ScriptedSTT, ScriptedTTS

WITHDRAWN = [
    Mark(0.1, "stt", "asked"),
    Mark(0.2, "stt", "done"),
    Mark(0.3, "llm", "asked"),
    Mark(0.4, "llm", "first"),
    Mark(0.5, "tts", "asked"),
]
ANSWER = [
    Mark(1.0, "stt", "asked"),
    Mark(1.3, "stt", "done"),
    Mark(1.4, "llm", "asked"),
    Mark(1.6, "llm", "first"),
    Mark(1.7, "tts", "asked"),
    Mark(1.9, "tts", "first"),
]
NEXT_SENTENCE = [Mark(2.1, "tts", "asked"), Mark(2.4, "tts", "first")]


def test_the_parts_are_those_of_the_answer_that_was_heard() -> None:
    assert chain([*WITHDRAWN, *ANSWER, *NEXT_SENTENCE], sound=2.0) == {
        "recognition begins": 1.0,
        "words known": 1.3,
        "model asked": 1.4,
        "first token": 1.6,
        "first clause to the voice": 1.7,
        "first audio from the voice": 1.9,
    }


def test_later_sentences_of_the_same_answer_change_nothing() -> None:
    early, late = chain([*ANSWER, *NEXT_SENTENCE], 2.0), chain([*ANSWER, *NEXT_SENTENCE], 3.0)
    assert early == late


def test_an_answer_without_a_model_has_no_parts() -> None:
    assert chain([Mark(1.0, "stt", "asked"), Mark(1.3, "stt", "done"), Mark(1.5, "tts", "first")], 2.0) == {}


def test_only_the_first_piece_of_each_answer_counts() -> None:
    asked = [Mark(1, "tts", "asked", 6), Mark(2, "llm", "asked"), Mark(3, "tts", "asked", 20)]
    assert first_lengths([*asked, Mark(4, "tts", "asked", 99)]) == [20]


def test_marks_are_read_in_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    path.write_text(
        '{"at": 2, "engine": "tts", "what": "first"}\n{"at": 1, "engine": "tts", "what": "asked"}\n'
    )
    assert [mark.what for mark in read_marks(path)] == ["asked", "first"]


def test_a_timed_voice_sounds_the_same_and_notes_its_first_and_last_sound() -> None:
    marks: list[str] = []
    voice = ScriptedTTS(EngineSettings("scripted"))
    timed = TimedTextToSpeech(voice, lambda what, _: marks.append(what))
    chunks = list(timed.synthesize("Hello, how are you?"))
    assert len(chunks) == len(list(voice.synthesize("Hello, how are you?")))
    assert timed.sample_rate == voice.sample_rate
    assert marks == ["asked", "first", "done"]


def test_closing_a_timed_stream_closes_the_engine() -> None:
    closed: list[bool] = []

    class Voice(ScriptedTTS):
        def synthesize(self, text, *, voice="", speed=1.0):
            try:
                yield from super().synthesize(text, voice=voice, speed=speed)
            finally:
                closed.append(True)

    stream = TimedTextToSpeech(Voice(EngineSettings("scripted")), lambda *_: None).synthesize("Hello there.")
    next(stream)
    stream.close()
    assert closed == [True]


def test_a_timed_recogniser_notes_when_it_is_done_even_if_it_fails() -> None:
    class Deaf(ScriptedSTT):
        def transcribe(self, samples, *, language=""):
            raise EngineError("It hears nothing.")

    marks: list[tuple[str, int]] = []
    timed = TimedSpeechToText(Deaf(EngineSettings("scripted")), lambda what, size: marks.append((what, size)))
    with pytest.raises(EngineError):
        timed.transcribe(np.zeros(160, np.float32))
    assert marks == [("asked", 160), ("done", 0)]


@pytest.mark.parametrize(
    ("seconds", "pause"),
    [([], 0.0), ([0, 1], 0.0), ([1, 0.3, 1, 0.5, 1], 0.5), ([0.2, 0.4], 0.0), ([0, 0.1, 2], 0.0)],
)
def test_the_longest_pause_is_between_two_sounds(seconds: list[float], pause: float) -> None:
    """``seconds`` of sound and silence in turn."""
    parts = [
        np.full(int(length * 48_000), 0 if n % 2 else 9000, np.int16) for n, length in enumerate(seconds)
    ]
    assert longest_pause(np.concatenate([np.zeros(0, np.int16), *parts])) == pytest.approx(pause, abs=0.011)
