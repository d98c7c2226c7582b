"""A real MCP server on the loopback, on a thread of its own: the SDK's, over Streamable HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations


class Tools:
    """The address of a running server, and what its tools were asked."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"
        self.asked: list[tuple[str, Any]] = []
        self.authorizations: set[str] = set()
        self.hanging = threading.Event()
        """A tool hangs."""
        self.let_go = threading.Event()
        """A hanging tool was cancelled."""


def _server(tools: Tools) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("weather", log_level="CRITICAL")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def get_weather(city: str) -> str:
        """What the weather is like in a city."""
        tools.asked.append(("get_weather", city))
        return f"four degrees in {city}"

    @server.tool()
    def fail() -> str:
        """Fails."""
        raise ValueError("no such luck")

    @server.tool()
    async def hang() -> str:
        """Never returns."""
        tools.hanging.set()
        try:
            await anyio.sleep_forever()
        finally:
            tools.let_go.set()
        return ""

    @server.tool()
    def talk() -> str:
        """Says a lot."""
        return "blah " * 20_000

    return server


@contextmanager
def mcp_server() -> Iterator[Tools]:
    """Serve until the block ends. Whoever connects early waits in the backlog."""
    listening = socket.create_server(("127.0.0.1", 0))
    tools = Tools(f"http://127.0.0.1:{listening.getsockname()[1]}")
    app = _noting(_server(tools).streamable_http_app(), tools)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="mcp server")
    thread.start()
    try:
        yield tools
    finally:
        server.should_exit = True
        thread.join()


def _noting(app: Any, tools: Tools) -> Any:
    async def noting(scope: Any, receive: Any, send: Any) -> None:
        for name, value in scope.get("headers", ()):
            if name == b"authorization":
                tools.authorizations.add(value.decode())
        await app(scope, receive, send)

    return noting
