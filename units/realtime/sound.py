"""Sound as it travels in events: base64 of 16-bit PCM at 24 kHz, or of G.711 at 8 kHz."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from units.messages import Audio, Int16
from units.realtime.errors import ProtocolError

PCM, PCMU, PCMA = "audio/pcm", "audio/pcmu", "audio/pcma"
RATES = {PCM: 24_000, PCMU: 8_000, PCMA: 8_000}
"""Samples a second, by format."""


def decoded(text: str, kind: str, param: str = "audio") -> Int16:
    """The sound in ``text``: int16 mono at ``RATES[kind]``. Raises ProtocolError."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError("invalid_value", f"Invalid '{param}': not valid base64.", param) from None
    if kind != PCM:
        return _DECODE[kind][np.frombuffer(raw, np.uint8)]
    if len(raw) % 2:
        message = f"Invalid '{param}': 16-bit samples need an even number of bytes."
        raise ProtocolError("invalid_value", message, param)
    return np.frombuffer(raw, "<i2")


class SoundEncoder:
    """Turns one stretch of speech into text, piece by piece. It holds back about a millisecond."""

    def __init__(self, format: dict[str, Any]) -> None:
        self._kind = format["type"]
        self._resampler = av.AudioResampler(format="s16", layout="mono", rate=RATES[self._kind])

    def encode(self, audio: Audio) -> str:
        """Base64 of ``audio`` in the format; "" when there is nothing yet."""
        if not len(audio.samples):
            return ""
        frame = av.AudioFrame.from_ndarray(audio.samples[np.newaxis, :], format="s16", layout="mono")
        frame.sample_rate = audio.rate
        return self._text(self._resampler.resample(frame))

    def finish(self) -> str:
        """What was held back."""
        return self._text(self._resampler.resample(None))

    def _text(self, frames: list[av.AudioFrame]) -> str:
        parts = [frame.to_ndarray()[0] for frame in frames]
        samples = np.concatenate(parts) if parts else np.zeros(0, np.int16)
        if self._kind == PCM:
            return base64.b64encode(samples.astype("<i2").tobytes()).decode()
        return base64.b64encode(_nearest(_DECODE[self._kind], samples).tobytes()).decode()


def _nearest(table: Int16, samples: Int16) -> npt.NDArray[np.uint8]:
    """For each sample the byte whose value in ``table`` is closest to it."""
    order = np.argsort(table, kind="stable")
    levels = table[order].astype(np.int32)
    edges = (levels[1:] + levels[:-1]) // 2
    return order[np.searchsorted(edges, samples.astype(np.int32))].astype(np.uint8)


def _mu_law() -> Int16:
    """The values of the 256 bytes of ITU-T G.711 mu-law."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    size = ((((code & 0x0F) << 3) + 0x84) << ((code & 0x70) >> 4)) - 0x84
    return np.where(code & 0x80, -size, size).astype(np.int16)


def _a_law() -> Int16:
    """The values of the 256 bytes of ITU-T G.711 A-law."""
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent, mantissa = (code & 0x70) >> 4, (code & 0x0F) << 4
    size = np.where(exponent == 0, mantissa + 8, (mantissa + 0x108) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, size, -size).astype(np.int16)


_DECODE = {PCMU: _mu_law(), PCMA: _a_law()}
