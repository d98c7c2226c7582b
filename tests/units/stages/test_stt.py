from __future__ import annotations

import numpy as np

from tests.units.odd_engines import FailingSTT
from units.engines.base import Transcription
from units.messages import (
    EAR_RATE,
    Float32,
    Recording,
    RecordingHeard,
    Speech,
    Transcribed,
    TranscriptFailed,
)
from units.scope import CancelScope
from units.stages.stt import transcribe


class Counting:
    """Says how many seconds it heard."""

    def __init__(self, *, live: bool = True) -> None:
        self.live = live
        self.languages: list[str] = []

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        self.languages.append(language)
        return Transcription(f" {len(samples) // EAR_RATE} s ")


def speech(
    purpose: str = "final", seconds: int = 1, turn: int = 1, revision: int = 1, before: int = 0
) -> Speech:
    samples = np.zeros(seconds * EAR_RATE, np.float32)
    return Speech(
        turn,
        revision,
        samples,
        purpose,  # type: ignore[arg-type]
        CancelScope("utterance"),
        "en",
        before * EAR_RATE,
    )


def test_a_recording_is_heard_between_the_pieces_of_a_turn() -> None:
    recording = Recording(7, np.zeros(5 * 24_000, np.int16), 24_000, "de")
    engine = Counting()
    pieces = [speech("settled", 20), recording, speech("final", 2, before=20)]
    assert list(transcribe(pieces, engine))[1:] == [
        RecordingHeard(7, "4 s", 5.0),
        Transcribed(1, 1, "20 s 2 s", True, 22.0),
    ]
    assert engine.languages[1] == "de"


def test_a_recording_that_cannot_be_recognised_is_reported() -> None:
    recording = Recording(1, np.zeros(24_000, np.int16), 24_000)
    (heard,) = transcribe([recording], FailingSTT())
    assert isinstance(heard, RecordingHeard)
    assert heard.failure


def test_each_utterance_is_answered_in_order() -> None:
    engine = Counting()
    assert [*transcribe([speech(seconds=1), speech(seconds=2, turn=2)], engine)] == [
        Transcribed(1, 1, "1 s", True, 1.0),
        Transcribed(2, 1, "2 s", True, 2.0),
    ]
    assert engine.languages == ["en", "en"]


def test_superseded_speech_is_skipped() -> None:
    old = speech(seconds=1)
    old.superseded.cancel()
    assert [each.text for each in transcribe([old, speech(seconds=2)], Counting())] == ["2 s"]  # type: ignore[union-attr]


def test_live_speech_is_left_to_engines_that_are_quick() -> None:
    assert len([*transcribe([speech("live")], Counting(live=True))]) == 1
    assert [*transcribe([speech("live")], Counting(live=False))] == []


def test_the_settled_beginning_stands_in_front() -> None:
    outputs = [*transcribe([speech("settled", 20), speech("final", 2, before=20)], Counting())]
    assert outputs == [
        Transcribed(1, 1, "20 s", False, 20.0),
        Transcribed(1, 1, "20 s 2 s", True, 22.0),
    ]


def test_what_was_settled_belongs_to_its_turn_only() -> None:
    outputs = [*transcribe([speech("settled", 20), speech("final", 2, turn=2)], Counting())]
    assert outputs[-1] == Transcribed(2, 1, "2 s", True, 2.0)


def test_a_failing_engine_fails_that_utterance_only() -> None:
    outputs = [*transcribe([speech(turn=1), speech(turn=2)], FailingSTT())]
    assert outputs == [
        TranscriptFailed(1, 1, "the recogniser is not well"),
        Transcribed(2, 1, "hello again", True, 1.0),
    ]


def test_live_passes_rest_so_that_a_final_one_seldom_waits() -> None:
    class Slow:
        live = True

        def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
            now[0] += 0.4
            return Transcription("word")

    now = [0.0]

    growing = [
        Speech(1, 0, np.zeros(second * EAR_RATE, np.float32), "live", CancelScope("utterance"))
        for second in range(1, 9)
    ]
    made = [*transcribe(growing, Slow(), lambda: now[0])]
    assert [each.seconds for each in made if isinstance(each, Transcribed)] == [1, 3, 5, 7]
