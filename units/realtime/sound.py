"""Sound as it travels in events: base64 of 16-bit PCM at 24 kHz, or of G.711 at 8 kHz."""

from __future__ import annotations

import base64
import binascii
import json

import numpy as np
import numpy.typing as npt

from units.messages import Int16
from units.realtime.errors import ProtocolError
from units.realtime.parse import parse_event

PCM, PCMU, PCMA = "audio/pcm", "audio/pcmu", "audio/pcma"
_APPEND = "input_audio_buffer.append"
PIECE = 65_536
"""Characters of base64 in a piece of sound: a second of PCM."""
RATES = {PCM: 24_000, PCMU: 8_000, PCMA: 8_000}
"""Samples a second, by format."""


def decoded(text: str, kind: str, param: str = "audio") -> Int16:
    """The sound in ``text``: int16 mono at ``RATES[kind]``. Raises ProtocolError."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ProtocolError("invalid_value", f"Invalid '{param}': not valid base64.", param) from None
    if kind != PCM:
        return _DECODE[kind][np.frombuffer(raw, np.uint8)]
    if len(raw) % 2:
        message = f"Invalid '{param}': 16-bit samples need an even number of bytes."
        raise ProtocolError("invalid_value", message, param)
    return np.frombuffer(raw, "<i2")


def pieces(message: str, limit: int) -> list[str]:
    """A long ``input_audio_buffer.append`` as short ones, which take no longer than others to be handled.

    Any other message, also one that is no event at all, is given back as it is. May be called in any thread.
    """
    if _APPEND not in message:
        return [message]
    try:
        event = parse_event(message, limit=limit)
    except ProtocolError:
        return [message]
    audio = event.get("audio")
    if event.get("type") != _APPEND or not isinstance(audio, str):
        return [message]
    parts = [audio[start : start + PIECE] for start in range(0, len(audio), PIECE)]
    try:
        size = sum(len(base64.b64decode(part, validate=True)) for part in parts)
    except ValueError:
        return [json.dumps({**event, "audio": "!"})]  # no less wrong, and found out sooner
    if size % 2 or "=" in audio[: len(audio) - 2]:
        return [message]
    return [json.dumps({**event, "audio": part}) for part in parts]


def encoded(samples: Int16, kind: str) -> str:
    """Base64 of ``samples``, int16 mono at ``RATES[kind]``."""
    raw = samples.astype("<i2") if kind == PCM else _nearest(_DECODE[kind], samples)
    return base64.b64encode(raw.tobytes()).decode()


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
