"""McpClient: real MCP servers on the loopback, and servers that are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.mcp_server import Tools, mcp_server
from units import mcp_client
from units.mcp_client import McpClient
from units.realtime.effects import CallTool, CancelTool, ListTools
from units.realtime.servers import RemoteTool, Server, ToolFault

CITY = '{"city": "Oslo"}'


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    with mcp_server() as tools:
        yield tools


class Asker:
    """A session's side of a client."""

    def __init__(self, *allowed: str) -> None:
        self.answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        put = lambda *answer: self.answers.put_nowait(answer)  # noqa: E731
        self.client = McpClient(allowed, put, put)

    async def list(self, server: Server) -> Any:
        self.client.perform(ListTools("list", server))
        return await self.answer("list")

    async def call(self, server: Server, name: str, arguments: str = "{}") -> Any:
        self.client.perform(CallTool("call", server, name, arguments))
        return await self.answer("call")

    async def answer(self, item_id: str) -> Any:
        async with asyncio.timeout(10):
            whose, answer = await self.answers.get()
        assert whose == item_id
        return answer


@pytest.fixture
async def asker(tools: Tools) -> AsyncIterator[Asker]:
    asker = Asker(tools.url)
    yield asker
    await closed(asker)


async def closed(asker: Asker) -> None:
    """Close; every task must end by itself."""
    asker.client.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    ours = [task for task in others if task.get_name().startswith("mcp ")]
    if ours:
        _, pending = await asyncio.wait(ours, timeout=10)
        assert not pending


async def test_tools_are_listed(asker: Asker, tools: Tools) -> None:
    listed = await asker.list(Server("w", tools.url))
    assert [tool.name for tool in listed] == ["get_weather", "fail", "hang", "talk"]
    assert isinstance(listed[0], RemoteTool)
    assert listed[0].description == "What the weather is like in a city."
    assert json.loads(listed[0].schema)["required"] == ["city"]
    assert [tool.read_only for tool in listed[:2]] == [True, False]


async def test_tools_are_called_over_one_connection(asker: Asker, tools: Tools) -> None:
    server = Server("w", tools.url, "token", (("X-Key", "1"),))
    await asker.list(server)
    for _ in range(2):
        assert await asker.call(server, "get_weather", CITY) == "four degrees in Oslo"
    assert "Bearer token" in tools.authorizations
    assert len(asker.client._connections) == 1


async def test_a_tool_that_fails_says_so(asker: Asker, tools: Tools) -> None:
    fault = await asker.call(Server("w", tools.url), "fail")
    assert isinstance(fault, ToolFault)
    assert (fault.type, fault.message) == ("tool_execution_error", "Error executing tool fail")


async def test_long_output_is_cut(asker: Asker, tools: Tools) -> None:
    output = await asker.call(Server("w", tools.url), "talk")
    assert output.endswith("[68000 more characters were left out]")
    assert len(output) < 33_000


@pytest.mark.parametrize("arguments", ["[]", "{", "1", "[" * 100_000])
async def test_arguments_that_are_no_object_are_not_sent(asker: Asker, tools: Tools, arguments: str) -> None:
    fault = await asker.call(Server("w", tools.url), "get_weather", arguments)
    assert fault.type == "tool_execution_error"


async def test_a_cancelled_call_is_cancelled_at_the_server(asker: Asker, tools: Tools) -> None:
    tools.hanging.clear()
    tools.let_go.clear()
    asker.client.perform(CallTool("hung", Server("w", tools.url), "hang", "{}"))
    assert await asyncio.to_thread(tools.hanging.wait, 10)
    asker.client.perform(CancelTool("hung"))
    assert await asyncio.to_thread(tools.let_go.wait, 10)
    assert await asker.call(Server("w", tools.url), "get_weather", CITY) == "four degrees in Oslo"


async def test_closing_ends_what_runs(tools: Tools) -> None:
    tools.hanging.clear()
    tools.let_go.clear()
    asker = Asker(tools.url)
    asker.client.perform(CallTool("hung", Server("w", tools.url), "hang", "{}"))
    assert await asyncio.to_thread(tools.hanging.wait, 10)
    await closed(asker)
    assert await asyncio.to_thread(tools.let_go.wait, 10)
    assert asker.answers.empty()


async def test_a_call_that_hangs_ends_at_its_time(
    asker: Asker, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_client, "CALL_S", 0.2)
    fault = await asker.call(Server("w", tools.url), "hang")
    assert (fault.type, fault.code) == ("http_error", 504)


async def test_connections_are_limited(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_client, "MOST_CONNECTIONS", 2)
    tools.hanging.clear()
    asker = Asker(tools.url)
    for token in "abc":
        assert await asker.list(Server("w", tools.url, token))
    assert len(asker.client._connections) == 2
    for token in "bc":
        asker.client.perform(CallTool(token, Server("w", tools.url, token), "hang", "{}"))
    fault = await asker.list(Server("w", tools.url, "d"))
    assert fault.type == "http_error"
    await closed(asker)


# --- servers that are none -----------------------------------------------------------------------


class Odd:
    """A server that answers every request in one odd way."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.release = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{way}/{tail:.*}", self.answer)
        app.router.add_route("*", "/{way}", self.answer)
        self.server = TestServer(app)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        return await getattr(self, request.match_info["way"])(request)

    async def unwell(self, _: web.Request) -> web.Response:
        return web.Response(status=503, text="out of order")

    async def closed(self, _: web.Request) -> web.Response:
        return web.Response(status=401, text="who are you?")

    async def garbage(self, _: web.Request) -> web.Response:
        return web.Response(text="{{{", content_type="application/json")

    async def page(self, _: web.Request) -> web.Response:
        return web.Response(text="<p>Welcome</p>", content_type="text/html")

    async def endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for _ in range(100):
            await response.write(b" " * 100_000)
        return response

    async def packed(self, _: web.Request) -> web.Response:
        return web.Response(
            body=b"\x1f\x8b", headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}
        )

    async def leaving(self, request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(str(request.url.with_path("/elsewhere")))

    async def elsewhere(self, _: web.Request) -> web.Response:
        raise AssertionError("nobody may come here")

    async def silent(self, _: web.Request) -> web.Response:
        await self.release.wait()
        return web.Response()

    async def dying(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async def many(self, request: web.Request) -> web.Response:
        """An old server, which lists 50 tools on each of very many pages."""
        asked = await request.json()
        if request.method != "POST" or "id" not in asked:
            return web.Response(status=202)
        if asked["method"] == "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "many", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif asked["method"] == "tools/list":
            start = int(asked.get("params", {}).get("cursor", 0))
            found = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(start, start + 50)]
            result = {"tools": found, "nextCursor": str(start + 50)}
        else:
            error = {"code": -32601, "message": "Method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})


@pytest.fixture
async def odd() -> AsyncIterator[Odd]:
    odd = Odd()
    async with odd.server:
        yield odd
        odd.release.set()


@pytest.mark.parametrize(
    ("way", "type", "code"),
    [
        ("unwell", "http_error", 503),
        ("closed", "http_error", 401),
        ("garbage", "protocol_error", None),
        ("page", "protocol_error", None),
        ("endless", "http_error", 502),
        ("packed", "http_error", 502),
        ("leaving", "http_error", 502),
        ("dying", "http_error", 502),
    ],
)
async def test_odd_answers_are_faults(odd: Odd, way: str, type: str, code: int | None) -> None:
    address = str(odd.server.make_url(f"/{way}"))
    asker = Asker(address)
    for _ in range(2):
        fault = await asker.list(Server("odd", address, "secret"))
        assert isinstance(fault, ToolFault)
        assert fault.type == type
        assert code in (None, fault.code)
        assert "secret" not in fault.message
    assert "/elsewhere" not in odd.requests
    await closed(asker)


async def test_a_server_that_says_nothing_is_given_up(odd: Odd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_client, "LIST_S", 0.2)
    address = str(odd.server.make_url("/silent"))
    asker = Asker(address)
    for _ in range(2):
        fault = await asker.list(Server("odd", address))
        assert (fault.type, fault.code) == ("http_error", 504)
    assert len(odd.requests) == 2
    await closed(asker)


async def test_a_server_that_is_not_there_is_a_fault(unused_tcp_port: int) -> None:
    address = f"http://127.0.0.1:{unused_tcp_port}/mcp"
    asker = Asker(address)
    fault = await asker.list(Server("gone", address))
    assert (fault.type, fault.code) == ("http_error", 502)
    await closed(asker)


async def test_lists_without_end_are_cut(odd: Odd) -> None:
    address = str(odd.server.make_url("/many"))
    asker = Asker(address)
    listed = await asker.list(Server("many", address))
    assert [tool.name for tool in listed] == [f"t{n}" for n in range(1_000)]
    await closed(asker)


async def test_an_error_of_the_protocol_is_passed_on(odd: Odd) -> None:
    address = str(odd.server.make_url("/many"))
    asker = Asker(address)
    fault = await asker.call(Server("many", address), "t1")
    assert fault == ToolFault("protocol_error", "Method not found", -32601)
    await closed(asker)


async def test_nothing_is_asked_of_an_address_that_is_not_allowed(odd: Odd) -> None:
    asker = Asker("http://127.0.0.1:1/mcp")
    fault = await asker.list(Server("odd", str(odd.server.make_url("/page"))))
    assert fault.type == "http_error"
    assert odd.requests == []
    await closed(asker)
