"""Tools of type ``mcp``, as clients configure them: which server, which of its tools, what asks first.

Servers are named by clients but reached by us, so only those count that the operator allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from units.realtime.errors import ProtocolError, missing, wrong_type, wrong_value
from units.realtime.schema import anything, array, boolean, either, fields, nullable, one_of, string

Wire = dict[str, Any]

SETTING = "--mcp-server (DUOLOGUE_MCP_SERVER)"
SECRETS = ("authorization", "headers")
"""Members that are never sent back."""

_LABEL = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PRINTABLE = re.compile(r"[\t\x20-\x7e]*")
_OURS = {"accept-encoding", "connection", "content-length", "host", "keep-alive", "te", "trailer"} | {
    "transfer-encoding",
    "upgrade",
}
"""Headers that say how a request travels and where to: a client could use them to get past the list."""
_ODD_PATH = re.compile(r"[\\\s\x00-\x1f\x7f]|%(?:2e|2f|5c)|(?:^|/)\.{1,2}(?:/|$)", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}


def _label(value: Any, path: str) -> Any:
    if not _LABEL.fullmatch(string(64)(value, path)):
        raise wrong_value(path, value, "letters, digits, '_' and '-'")
    return value


def _printable(value: Any, path: str) -> Any:
    if not _PRINTABLE.fullmatch(string(16_384)(value, path)):
        raise ProtocolError("invalid_value", f"Invalid '{path}': only printable ASCII can be sent.", path)
    return value


def _headers(value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise wrong_type(path, "an object", value)
    for name, text in value.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OURS:
            raise ProtocolError("invalid_value", f"Invalid '{path}': '{name[:64]}' cannot be set.", path)
        _printable(text, f"{path}.{name[:64]}")
    return value


def _not_supported(value: Any, path: str) -> Any:
    name = path.rpartition(".")[2]
    message = f"'{name}' is not supported here: name the server by its 'server_url'."
    raise ProtocolError("invalid_value", message, path)


_filter = fields({"tool_names": nullable(array(string(256), 1_000)), "read_only": nullable(boolean)})

_fields = fields(
    {
        "type": anything,
        "server_label": _label,
        "server_url": string(2_048),
        "connector_id": nullable(_not_supported),
        "tunnel_id": nullable(_not_supported),
        "server_description": nullable(string(1_024)),
        "authorization": nullable(_printable),
        "headers": nullable(_headers),
        "allowed_tools": nullable(either(_filter, array(string(256), 1_000))),
        "require_approval": nullable(
            either(
                fields({"always": nullable(_filter), "never": nullable(_filter)}), one_of("always", "never")
            )
        ),
        "allowed_callers": nullable(array(one_of("direct"))),
        "defer_loading": nullable(boolean),
    },
    required=("server_label",),
)


def mcp_tool(value: Any, path: str) -> Any:
    """The check of one tool of type ``mcp``."""
    checked = _fields(value, path)
    if "server_url" not in checked:
        raise missing(f"{path}.server_url")
    return checked


def check_allowed(tools: Iterable[Wire], servers: Iterable[str], path: str) -> None:
    """Raise a ProtocolError for a server in ``tools`` that none of ``servers`` allows."""
    for index, tool in enumerate(tools):
        if tool["type"] == "mcp" and not allows(servers, tool["server_url"]):
            message = (
                f"MCP server '{tool['server_label']}': its 'server_url' is not among those that the "
                f"operator of this server allows with {SETTING}."
            )
            raise ProtocolError("invalid_value", message, f"{path}[{index}].server_url")


def allows(servers: Iterable[str], url: str) -> bool:
    """Whether ``url`` is one of ``servers`` or below it: of the same origin, and so are its path segments."""
    asked = _parsed(url)
    return asked is not None and any(_below(_parsed(server), asked) for server in servers)


def _parsed(url: str) -> SplitResult | None:
    """None for what is no plain http or https address."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        return None
    odd = "@" in parts.netloc or "\\" in parts.netloc or _ODD_PATH.search(parts.path)
    printable = _PRINTABLE.fullmatch(url) and not set(url) & {" ", "\t"}
    return parts if plain and printable and not odd else None


def _below(prefix: SplitResult | None, parts: SplitResult) -> bool:
    if prefix is None or _origin(prefix) != _origin(parts):
        return False
    path = prefix.path.rstrip("/")
    return parts.path == path or parts.path.startswith(f"{path}/") or not path


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """One tool of a server. ``schema`` and ``annotations`` are JSON objects as text."""

    name: str
    description: str = ""
    schema: str = "{}"
    annotations: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ToolFault:
    """Why a server gave no tools or no result."""

    type: Literal["protocol_error", "http_error", "tool_execution_error"]
    message: str
    code: int = 0

    def wire(self) -> Wire:
        code = {} if self.type == "tool_execution_error" else {"code": self.code}
        return {"type": self.type, "message": self.message, **code}


@dataclass(frozen=True, slots=True)
class Filter:
    """Some of a server's tools. None: whatever the tool is."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    @classmethod
    def of(cls, wire: Any) -> Filter:
        """From the wire: a list of names, an object, or None for all tools."""
        given: Wire = {"tool_names": wire} if isinstance(wire, list) else wire or {}
        names = given.get("tool_names")
        return cls(None if names is None else frozenset(names), given.get("read_only"))

    def matches(self, tool: RemoteTool) -> bool:
        named = self.names is None or tool.name in self.names
        return named and self.read_only in (None, tool.read_only)


_NONE = Filter(frozenset())


@dataclass(frozen=True, slots=True)
class Server:
    """An MCP server as a client configured it. Equal are those that have the same tools to list."""

    label: str
    url: str
    authorization: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    allowed: Filter = Filter()
    description: str = field(default="", compare=False)
    always: Filter = field(default=Filter(), compare=False)
    """Tools that ask for approval, whatever ``never`` says."""
    never: Filter = field(default=_NONE, compare=False)
    """Tools that do not; those in neither do."""

    @classmethod
    def of(cls, tool: Wire) -> Server:
        """From a checked tool of type ``mcp``."""
        always, never = _approval(tool.get("require_approval") or "always")
        return cls(
            tool["server_label"],
            tool["server_url"],
            tool.get("authorization") or "",
            tuple((tool.get("headers") or {}).items()),
            Filter.of(tool.get("allowed_tools")),
            tool.get("server_description") or "",
            always,
            never,
        )

    def asks(self, tool: RemoteTool) -> bool:
        """Whether the user has to approve a call of ``tool``."""
        return self.always.matches(tool) or not self.never.matches(tool)


def _approval(wire: str | Wire) -> tuple[Filter, Filter]:
    if wire == "always":
        return Filter(), _NONE
    if wire == "never":
        return _NONE, Filter()
    assert isinstance(wire, dict)
    always, never = wire.get("always"), wire.get("never")
    others = Filter() if always and not never else _NONE  # only some are to ask, so the others do not
    return Filter.of(always) if always else _NONE, Filter.of(never) if never else others
