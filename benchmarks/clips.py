"""Real speech to talk with: five LibriVox clips that Debian has in ``pocketsphinx-testdata``.

They are cut where the voice is loud, and followed by digital silence, so that "the caller began to speak" and
"the caller stopped speaking" are one sample each, about which no detector can differ. Soft sounds beyond that
are lost.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from benchmarks.caller import at_rate
from benchmarks.figures import CannotRun
from server.track import FRAME, RATE
from units.messages import Int16

FOLDER = Path("/usr/share/pocketsphinx/test/data/librivox")

_WINDOW = RATE // 100
_FLOOR_DB = 15.0
"""It is loud where 10 ms are at most this much below the loudest 10 ms."""


def clips() -> list[Int16]:
    """The five clips, int16 mono at 24 kHz. The last sample of each is the last one that is loud.

    Raises CannotRun when they are not installed.
    """
    paths = sorted(FOLDER.glob("*.wav"))
    if not paths:
        raise CannotRun(f"There is no speech in {FOLDER}: install the Debian package pocketsphinx-testdata.")
    return [whole_frames(voice(load(path))) for path in paths]


def load(path: Path) -> Int16:
    """A WAV file of 16 bit mono, at 24 kHz."""
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return at_rate(samples, file.getframerate(), RATE)


def voice(samples: Int16) -> Int16:
    """``samples`` from the first to the last loud 10 ms."""
    whole = samples[: len(samples) - len(samples) % _WINDOW].astype(np.float32).reshape(-1, _WINDOW)
    level = np.sqrt(np.square(whole).mean(axis=1))
    loud = np.flatnonzero(level >= level.max() * 10 ** (-_FLOOR_DB / 20))
    return samples[loud[0] * _WINDOW : (loud[-1] + 1) * _WINDOW]


def ending(samples: Int16, seconds: float) -> Int16:
    """The last ``seconds`` of speech."""
    return whole_frames(samples[-round(seconds * RATE) :])


def beginning(samples: Int16, seconds: float) -> Int16:
    """The first ``seconds`` of the voice."""
    return voice(samples)[: round(seconds * RATE)]


def whole_frames(samples: Int16) -> Int16:
    """``samples`` with silence in front, so that the last one is the last one of a packet."""
    return np.pad(samples, (-len(samples) % FRAME, 0))
