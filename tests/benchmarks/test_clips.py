"""Where speech begins and ends."""

from __future__ import annotations

import numpy as np

from benchmarks.clips import ending, voice, whole_frames
from server.track import FRAME, RATE


def tone(seconds: float, level: float) -> np.ndarray:
    t = np.arange(round(seconds * RATE)) / RATE
    return (level * 32767 * np.sin(2 * np.pi * 300 * t)).astype(np.int16)


def test_the_voice_is_cut_where_it_is_loud() -> None:
    quiet = tone(0.5, 0.01)
    assert len(voice(np.concatenate([quiet, tone(1.0, 0.5), quiet]))) == RATE


def test_the_last_sample_of_speech_is_the_last_of_a_packet() -> None:
    padded = whole_frames(tone(0.51, 0.5)[:-7])
    assert len(padded) % FRAME == 0
    assert padded[0] == 0
    assert padded[-1] != 0


def test_an_ending_has_the_length_that_was_asked_for() -> None:
    assert len(ending(tone(3.0, 0.5), 1.5)) == 1.5 * RATE
