"""What is in a recording."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

RATE = 48_000
"""What Opus is decoded to, in Hz."""


def read(path: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Left and right, in [-1, 1] at 48 kHz."""
    with av.open(str(path)) as file:
        assert file.streams.audio[0].codec_context.layout.name == "stereo"
        frames = [frame.to_ndarray() for frame in file.decode(audio=0)]
    sound = np.concatenate(frames, axis=1).astype(np.float64)
    return sound[0], sound[1]


def hertz(samples: npt.NDArray[np.float64]) -> float:
    """The loudest frequency."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * RATE / len(samples))


def spans(
    samples: npt.NDArray[np.float64], level: float = 0.05, pause: float = 0.1
) -> list[tuple[float, float]]:
    """Where it is loud, in seconds: beginning and end of each stretch; shorter pauses are passed over."""
    (loud,) = np.nonzero(np.abs(samples) > level)
    if not len(loud):
        return []
    breaks = np.flatnonzero(np.diff(loud) > pause * RATE)
    begins = loud[np.concatenate([[0], breaks + 1])]
    ends = loud[np.concatenate([breaks, [len(loud) - 1]])]
    return [(begin / RATE, end / RATE) for begin, end in zip(begins, ends, strict=True)]
