"""Checks for what clients send, composed from small ones.

A check takes a value and the path under which the client sent it, and returns the value or raises a
ProtocolError that names the path. ``fields`` describes an object; unknown members are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from units.realtime.errors import ProtocolError, missing, unknown, wrong_type, wrong_value

Check = Callable[[Any, str], Any]


def anything(value: Any, path: str) -> Any:
    return value


def boolean(value: Any, path: str) -> Any:
    if not isinstance(value, bool):
        raise wrong_type(path, "a boolean", value)
    return value


def string(max_length: int = 1_000_000) -> Check:
    def check(value: Any, path: str) -> Any:
        if not isinstance(value, str):
            raise wrong_type(path, "a string", value)
        if len(value) > max_length:
            message = f"Invalid '{path}': string too long. Expected at most {max_length} characters."
            raise ProtocolError("string_above_max_length", message, path)
        return value

    return check


def one_of(*supported: str) -> Check:
    def check(value: Any, path: str) -> Any:
        if not isinstance(value, str):
            raise wrong_type(path, f"one of {', '.join(map(repr, supported))}", value)
        if value not in supported:
            raise wrong_value(path, value, supported)
        return value

    return check


def integer(low: int, high: int) -> Check:
    def check(value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type(path, "an integer", value)
        return _within(value, low, high, path, "integer")

    return check


def number(low: float, high: float) -> Check:
    def check(value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise wrong_type(path, "a number", value)
        return _within(value, low, high, path, "decimal")

    return check


def _within(value: float, low: float, high: float, path: str, kind: str) -> float:
    if value < low:
        message = f"Invalid '{path}': {kind} below minimum value. Expected a value >= {low}, but got {value}."
        raise ProtocolError(f"{kind}_below_min_value", message, path)
    if value > high:
        message = (
            f"Invalid '{path}': {kind} above maximum value. Expected a value <= {high}, but got {value}."
        )
        raise ProtocolError(f"{kind}_above_max_value", message, path)
    return value


def nullable(inner: Check) -> Check:
    return lambda value, path: None if value is None else inner(value, path)


def either(*checks: Check) -> Check:
    """The first check that accepts; else the complaint of the last one."""

    def check(value: Any, path: str) -> Any:
        for candidate in checks[:-1]:
            try:
                return candidate(value, path)
            except ProtocolError:
                continue
        return checks[-1](value, path)

    return check


def array(inner: Check, max_length: int = 10_000) -> Check:
    def check(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise wrong_type(path, "an array", value)
        if len(value) > max_length:
            message = f"Invalid '{path}': array too long. Expected at most {max_length} elements."
            raise ProtocolError("array_above_max_length", message, path)
        return [inner(element, f"{path}[{index}]") for index, element in enumerate(value)]

    return check


def fields(members: Mapping[str, Check], required: tuple[str, ...] = (), *, open: bool = False) -> Check:
    """An object with these members; ``open`` lets others pass unchecked."""

    def check(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise wrong_type(path, "an object", value)
        for name in required:
            if name not in value:
                raise missing(_join(path, name))
        checked = {}
        for name, member in value.items():
            if name in members:
                checked[name] = members[name](member, _join(path, name))
            elif open:
                checked[name] = member
            else:
                raise unknown(_join(path, name))
        return checked

    return check


def by_type(kinds: Mapping[str, Check]) -> Check:
    """An object whose ``type`` says which check applies."""

    def check(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise wrong_type(path, "an object", value)
        kind = one_of(*kinds)(_required(value, "type", path), _join(path, "type"))
        return kinds[kind](value, path)

    return check


def _required(value: dict[str, Any], name: str, path: str) -> Any:
    if name not in value:
        raise missing(_join(path, name))
    return value[name]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
