"""What clients may say about MCP servers."""

from __future__ import annotations

from typing import Any

import pytest

from units.realtime.config import SessionConfig
from units.realtime.errors import ProtocolError
from units.realtime.servers import Filter, RemoteTool, Server, allows

URL = "https://tools.example.org/mcp"
READS = RemoteTool("reads", read_only=True)
WRITES = RemoteTool("writes")


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        (URL, URL),
        (URL, f"{URL}/"),
        (URL, f"{URL}/weather"),
        (f"{URL}/", f"{URL}/weather"),
        (URL, f"{URL}?key=1"),
        (URL, "https://TOOLS.example.org:443/mcp"),
        ("https://tools.example.org", URL),
        ("https://tools.example.org/", "https://tools.example.org"),
        ("http://localhost:8000/mcp", "http://localhost:8000/mcp"),
    ],
)
def test_an_address_at_or_below_an_allowed_one_is_allowed(prefix: str, url: str) -> None:
    assert allows([prefix], url)


@pytest.mark.parametrize(
    "url",
    [
        "https://tools.example.org.evil.com/mcp",
        "https://evil.com/https://tools.example.org/mcp",
        "https://tools.example.org/mcpx",
        "https://tools.example.org/",
        "https://tools.example.org/mcp/../admin",
        "https://tools.example.org/mcp/%2e%2e/admin",
        "https://tools.example.org/mcp/..%2fadmin",
        "https://tools.example.org/mcp\\..\\admin",
        "https://tools.example.org:444/mcp",
        "http://tools.example.org/mcp",
        "https://user@tools.example.org/mcp",
        "https://tools.example.org@evil.com/mcp",
        "https://tools.example.org\\@evil.com/mcp",
        "https://tools.example.org:nan/mcp",
        "https://tools.example.org/mcp\n",
        "https://tools.example.org/ mcp",
        "ftp://tools.example.org/mcp",
        "//tools.example.org/mcp",
        "https://[::1/mcp",
        "tools.example.org/mcp",
        "",
    ],
)
def test_every_other_address_is_not(url: str) -> None:
    assert not allows([URL], url)


def test_nothing_is_allowed_by_default() -> None:
    assert not allows((), URL)


def config(*tools: dict[str, Any], servers: tuple[str, ...] = (URL,)) -> SessionConfig:
    session = SessionConfig.default(
        id="sess", model="m", instructions="", voice="v", expires_at=0, mcp_servers=servers
    )
    return session.updated({"type": "realtime", "tools": list(tools)})


def mcp(**members: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "weather", "server_url": URL, **members}


@pytest.mark.parametrize(
    ("tool", "code", "param"),
    [
        (mcp(server_url="https://evil.com/mcp"), "invalid_value", "server_url"),
        (mcp(connector_id="connector_gmail"), "invalid_value", "connector_id"),
        (mcp(tunnel_id="t"), "invalid_value", "tunnel_id"),
        (mcp(server_label=""), "invalid_value", "server_label"),
        (mcp(server_label="a b"), "invalid_value", "server_label"),
        ({"type": "mcp", "server_url": URL}, "missing_required_parameter", "server_label"),
        ({"type": "mcp", "server_label": "a"}, "missing_required_parameter", "server_url"),
        (mcp(headers={"Host": "internal"}), "invalid_value", "headers"),
        (mcp(headers={"X": "a\r\nHost: internal"}), "invalid_value", "headers.X"),
        (mcp(authorization="a\nb"), "invalid_value", "authorization"),
        (mcp(require_approval="sometimes"), "invalid_value", "require_approval"),
        (mcp(require_approval={"never": {"names": []}}), "invalid_type", "require_approval"),
        (mcp(allowed_tools=[1]), "invalid_type", "allowed_tools[0]"),
        (mcp(allowed_callers=["programmatic"]), "invalid_value", "allowed_callers[0]"),
    ],
)
def test_a_wrong_tool_is_refused_with_its_member(tool: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        config(tool)
    assert (refused.value.code, refused.value.param) == (code, f"session.tools[0].{param}")


def test_the_refusal_says_what_the_operator_must_change() -> None:
    with pytest.raises(ProtocolError, match="DUOLOGUE_MCP_SERVER"):
        config(mcp(), servers=())


def test_labels_are_unique_and_servers_are_few() -> None:
    with pytest.raises(ProtocolError) as refused:
        config(mcp(), mcp())
    assert refused.value.param == "session.tools[1].server_label"
    with pytest.raises(ProtocolError) as refused:
        config(*(mcp(server_label=f"s{n}") for n in range(17)))
    assert refused.value.code == "array_above_max_length"


def test_a_function_may_have_the_name_of_a_server() -> None:
    assert len(config(mcp(), {"type": "function", "name": "weather"}).wire()["tools"]) == 2


def test_secrets_are_not_sent_back_nor_shown() -> None:
    session = config(mcp(authorization="secret", headers={"X-Key": "secret"}, require_approval="never"))
    assert session.wire()["tools"] == [mcp(require_approval="never")]
    assert session.servers[0].authorization == "secret"
    assert "secret" not in repr(session.servers)


def test_equal_are_servers_with_the_same_tools_to_list() -> None:
    first = Server.of(mcp())
    assert first == Server.of(mcp(require_approval="never", server_description="x"))
    for other in ({"authorization": "x"}, {"headers": {"a": "b"}}, {"allowed_tools": ["a"]}):
        assert first != Server.of(mcp(**other))


@pytest.mark.parametrize(
    ("allowed", "matches"),
    [
        (None, (True, True)),
        ({}, (True, True)),
        ([], (False, False)),
        (["reads"], (True, False)),
        ({"read_only": True}, (True, False)),
        ({"read_only": False}, (False, True)),
        ({"tool_names": ["writes"], "read_only": True}, (False, False)),
    ],
)
def test_which_tools_a_filter_lets_through(allowed: Any, matches: tuple[bool, bool]) -> None:
    chosen = Filter.of(allowed)
    assert (chosen.matches(READS), chosen.matches(WRITES)) == matches


@pytest.mark.parametrize(
    ("approval", "asks"),
    [
        (None, (True, True)),
        ("always", (True, True)),
        ("never", (False, False)),
        ({}, (True, True)),
        ({"never": {"tool_names": ["reads"]}}, (False, True)),
        ({"never": {"read_only": True}}, (False, True)),
        ({"always": {"tool_names": ["writes"]}}, (False, True)),
        ({"always": {"tool_names": ["writes"]}, "never": {"tool_names": ["reads"]}}, (False, True)),
        ({"always": {"tool_names": ["writes"]}, "never": {}}, (False, True)),
        ({"always": {"tool_names": ["reads"]}, "never": {"tool_names": ["reads", "writes"]}}, (True, False)),
    ],
)
def test_which_tools_ask_for_approval(approval: Any, asks: tuple[bool, bool]) -> None:
    server = Server.of(mcp(require_approval=approval))
    assert (server.asks(READS), server.asks(WRITES)) == asks
