"""The flat session of the Realtime API's beta, in today's shape."""

from __future__ import annotations

from typing import Any

_FORMATS = {
    "pcm16": {"type": "audio/pcm", "rate": 24_000},
    "g711_ulaw": {"type": "audio/pcmu"},
    "g711_alaw": {"type": "audio/pcma"},
}

_PLACES = {
    "input_audio_format": ("input", "format"),
    "input_audio_transcription": ("input", "transcription"),
    "input_audio_noise_reduction": ("input", "noise_reduction"),
    "turn_detection": ("input", "turn_detection"),
    "output_audio_format": ("output", "format"),
    "voice": ("output", "voice"),
    "speed": ("output", "speed"),
}
"""Where flat members stand under ``audio``."""

_NAMES = {"modalities": "output_modalities", "max_response_output_tokens": "max_output_tokens"}
_GONE = ("temperature",)
"""Members that mean nothing any more."""


def modern(session: dict[str, Any], kind: str = "realtime") -> dict[str, Any]:
    """``session`` with the beta's members where they belong now, and its ``type``, ``kind`` unless it says
    so itself. What else is in it stays as it is, so that what is wrong is found where the client wrote it."""
    mapped: dict[str, Any] = {"type": kind}
    audio: dict[str, dict[str, Any]] = {}
    for name, value in session.items():
        if name in _PLACES:
            side, member = _PLACES[name]
            known = value if not isinstance(value, str) else _FORMATS.get(value, value)
            audio.setdefault(side, {})[member] = known
        elif name == "modalities":
            mapped[_NAMES[name]] = ["audio"] if isinstance(value, list) and "audio" in value else value
        elif name not in _GONE:
            mapped[_NAMES.get(name, name)] = value
    if audio:
        mapped["audio"] = _merged(audio, mapped["audio"]) if "audio" in mapped else audio
    return mapped


def _merged(before: Any, value: Any) -> Any:
    """``value`` over what flat members have put in the same place."""
    if not (isinstance(before, dict) and isinstance(value, dict)):
        return value
    return before | {name: _merged(before.get(name), inner) for name, inner in value.items()}
