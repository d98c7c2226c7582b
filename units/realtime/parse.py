"""From what arrives on the wire to a client event, or a ProtocolError that says what is wrong with it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from units.realtime.errors import ProtocolError, missing, wrong_type

MAX_MESSAGE = 262_144
"""Largest client event over a data channel, in bytes: what is advertised in the SDP."""

MAX_DEPTH = 100
"""Deepest nesting: far more than any tool's schema has, far less than Python's stack."""

LONGEST_NUMBER = 4_300
"""Digits: Python refuses to read longer integers, and takes long to read longer fractions."""

MAX_COMMAS = 50_000
"""Most commas in a message, those in texts included: more values than that keep the parser, which lets
nobody else do anything meanwhile, for over 50 ms."""

Event = dict[str, Any]


def parse_event(message: str | bytes, *, limit: int = MAX_MESSAGE) -> Event:
    """The object in ``message``; :func:`event_type` tells which event it is. Raises ProtocolError.

    For JSON objects that are no events too: what they may hold is the same.
    """
    if isinstance(message, bytes):
        raise ProtocolError("invalid_event", "Invalid event: expected a text frame, got a binary one.")
    if len(message) > limit:
        size = f"{len(message)} characters"
        raise ProtocolError("invalid_event", f"Invalid event: {size} is more than the limit of {limit}.")
    if message.count(",") > MAX_COMMAS:
        raise ProtocolError("invalid_event", f"Invalid event: more than {MAX_COMMAS} commas.")
    event = _load(message)
    if not isinstance(event, dict):
        raise ProtocolError("invalid_event", "Invalid event: expected a JSON object.")
    return event


def event_type(event: Event) -> str:
    """The ``type`` of a client event. Raises ProtocolError."""
    if "type" not in event:
        raise missing("type")
    if not isinstance(event["type"], str):
        raise wrong_type("type", "a string", event["type"])
    return event["type"]


def _load(message: str) -> Any:
    try:
        value = json.loads(message, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        text = f"Invalid event: failed to parse JSON ({reason})."
        raise ProtocolError("invalid_json", text) from None
    _refuse_depth(value)
    return _without_surrogates(value, message)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    """Python reads 1e999 as infinity, which it could not spell in an answer."""
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:32]} is too large")
    return number


def _refuse_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
        if depth > MAX_DEPTH:
            message = f"Invalid event: failed to parse JSON (nested more than {MAX_DEPTH} levels deep)."
            raise ProtocolError("invalid_json", message)


def _children(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _without_surrogates(value: Any, message: str) -> Any:
    """JSON can spell half a character (``\\ud800``), which cannot be encoded again: it becomes U+FFFD."""
    if ("\\" not in message and message.isascii()) or all(map(_whole, _texts(value))):
        return value
    if len(message) > MAX_MESSAGE:
        raise ProtocolError("invalid_json", "Invalid event: failed to parse JSON (half a character).")
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from value
            for child in value.values():
                yield from _texts(child)
        case list():
            for child in value:
                yield from _texts(child)


def _whole(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
