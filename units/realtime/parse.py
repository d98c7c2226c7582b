"""From what arrives on the wire to a client event, or a ProtocolError that says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

from units.realtime.errors import ProtocolError, missing, wrong_type

MAX_MESSAGE = 262_144
"""Largest client event over a data channel, in bytes: what is advertised in the SDP."""

Event = dict[str, Any]


def parse_event(message: str | bytes, *, limit: int = MAX_MESSAGE) -> Event:
    """The client event in ``message``: an object with a ``type``. Raises ProtocolError."""
    if isinstance(message, bytes):
        raise ProtocolError("invalid_event", "Invalid event: expected a text frame, got a binary one.")
    if len(message) > limit:
        size = f"{len(message)} characters"
        raise ProtocolError("invalid_event", f"Invalid event: {size} is more than the limit of {limit}.")
    event = _load(message)
    if not isinstance(event, dict):
        raise ProtocolError("invalid_event", "Invalid event: expected a JSON object.")
    if "type" not in event:
        raise missing("type")
    if not isinstance(event["type"], str):
        raise wrong_type("type", "a string", event["type"])
    return event


def _load(message: str) -> Any:
    try:
        value = json.loads(message, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        text = f"Invalid event: failed to parse JSON ({reason})."
        raise ProtocolError("invalid_json", text) from None
    return _without_surrogates(value, message)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _without_surrogates(value: Any, message: str) -> Any:
    """JSON can spell half a character (``\\ud800``), which cannot be encoded again: it becomes U+FFFD."""
    if "\\ud" not in message.lower() and message.isascii():
        return value
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise ProtocolError("invalid_json", "Invalid event: too deeply nested.") from None
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
