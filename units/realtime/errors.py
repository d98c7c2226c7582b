"""The peer's faults, spelt as the Realtime API spells them (``error`` events, HTTP error bodies)."""

from __future__ import annotations


class ProtocolError(Exception):
    """A client's mistake. Becomes one ``error`` event; the session lives."""

    def __init__(
        self,
        code: str | None,
        message: str,
        param: str | None = None,
        *,
        type: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.type = type
        self.code = code
        self.message = message
        self.param = param

    def body(self) -> dict[str, str | None]:
        """The members that an ``error`` event and an HTTP error body share."""
        return {"type": self.type, "code": self.code, "message": self.message, "param": self.param}


def missing(param: str) -> ProtocolError:
    return ProtocolError("missing_required_parameter", f"Missing required parameter: '{param}'.", param)


def unknown(param: str) -> ProtocolError:
    return ProtocolError("unknown_parameter", f"Unknown parameter: '{param}'.", param)


def wrong_type(param: str, expected: str, value: object) -> ProtocolError:
    got = _TYPE_NAMES.get(type(value), "an object")
    message = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
    return ProtocolError("invalid_type", message, param)


def wrong_value(param: str, value: object, supported: object = None) -> ProtocolError:
    shown = value if len(str(value)) <= 64 else f"{str(value)[:64]}…"
    message = f"Invalid value: '{shown}'."
    if supported:
        message += f" Supported values are: {_listed(supported)}."
    return ProtocolError("invalid_value", message, param)


def _listed(values: object) -> str:
    if isinstance(values, str):
        return values
    assert hasattr(values, "__iter__")
    return ", ".join(f"'{value}'" for value in values)


_TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
