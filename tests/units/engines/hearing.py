"""What a recogniser hears in synthesised speech, and how far that is from what was to be said."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import av
import numpy as np

from units.messages import EAR_RATE, Float32
from units.models import ModelStore


def heard(sound: Float32, rate: int) -> str:
    """The words in ``sound`` (float32 mono), by Whisper base."""
    padded = np.pad(_resampled(sound, rate), EAR_RATE // 2)
    segments, _ = _whisper().transcribe(padded, language="en", beam_size=1)
    return " ".join(segment.text for segment in segments).strip()


def word_errors(expected: str, found: str) -> tuple[int, int]:
    """Words wrong, missing or too many, and words expected (Levenshtein over lower-case words)."""
    want, have = _words(expected), _words(found)
    row = list(range(len(have) + 1))
    for i, word in enumerate(want, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(have, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1], len(want)


def _words(text: str) -> list[str]:
    return re.findall(
        r"[a-z0-9']+", text.lower().replace("%", " percent").translate({ord(","): None, ord(":"): None})
    )


def _resampled(sound: Float32, rate: int) -> Float32:
    resampler = av.AudioResampler("flt", "mono", EAR_RATE)
    frame = av.AudioFrame.from_ndarray(sound[None], "flt", "mono")
    frame.sample_rate = rate
    out = [piece.to_ndarray()[0] for given in (frame, None) for piece in resampler.resample(given)]
    return np.concatenate(out)


@cache
def _whisper() -> Any:
    from faster_whisper import WhisperModel

    return WhisperModel(str(ModelStore().path("whisper-base")), device="cpu", compute_type="int8")
