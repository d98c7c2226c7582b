"""Stateful resamplers, one per stream, at the edges of a unit."""

from __future__ import annotations

import av
import numpy as np

from units.messages import EAR_RATE, Float32, Int16


class EarResampler:
    """Turns int16 mono at ``rate`` Hz into what the ears take: float32 mono at 16 kHz.

    It holds back about a millisecond; the state belongs to one stream.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._resampler = av.AudioResampler(format="flt", layout="mono", rate=EAR_RATE)

    def convert(self, samples: Int16) -> Float32:
        """The converted samples that are ready; any length, possibly none."""
        if not len(samples):
            return np.zeros(0, np.float32)
        frame = av.AudioFrame.from_ndarray(samples[np.newaxis, :], format="s16", layout="mono")
        frame.sample_rate = self._rate
        parts = [part.to_ndarray()[0] for part in self._resampler.resample(frame)]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)


class VoiceResampler:
    """Turns int16 mono at any rate into int16 mono at ``rate`` Hz.

    It holds back about a millisecond, unless the rates are the same; the state belongs to one stream.
    """

    def __init__(self, rate: int) -> None:
        self._resampler = av.AudioResampler(format="s16", layout="mono", rate=rate)

    def convert(self, samples: Int16, rate: int) -> Int16:
        """The converted samples that are ready; any length, possibly none."""
        if not len(samples):
            return samples
        frame = av.AudioFrame.from_ndarray(samples[np.newaxis, :], format="s16", layout="mono")
        frame.sample_rate = rate
        return _joined(self._resampler.resample(frame))

    def finish(self) -> Int16:
        """What was held back."""
        return _joined(self._resampler.resample(None))


def _joined(frames: list[av.AudioFrame]) -> Int16:
    parts: list[Int16] = [frame.to_ndarray()[0] for frame in frames]
    return np.concatenate(parts) if parts else np.zeros(0, np.int16)
