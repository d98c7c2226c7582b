"""McpClient: what a session asks of MCP servers, on the official SDK. Imported only where some are allowed.

There is one connection for each server and its credentials, opened when it is first needed and closed with
the session; a task holds it. Each question is a task of its own, with a limit on its time. A server may hang,
die, answer nonsense or too much: that is one failed answer, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
    Tool,
)

from units.realtime.effects import CallTool, CancelTool, ListTools
from units.realtime.servers import RemoteTool, Server, ToolFault, allows

logger = logging.getLogger(__name__)
for needed in ("anyio._backends._asyncio", "h11", "httpcore2", "jsonschema"):
    import_module(needed)  # or the first call would wait for it, and everybody else with it
logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it quotes what servers say, at any level

LIST_S = 15.0
CALL_S = 60.0
"""How long a server may take, connecting included."""
CLOSE_S = 2.0
_TLS = httpx2.create_ssl_context()
CONNECT_S = 5.0
MOST_CONNECTIONS = 16
MOST_PAGES = 20
MOST_BYTES = 1_000_000
MOST_STREAMED = 16_000_000
"""Of one answer, and of one stream of events, which the SDK limits too, by the event."""
MOST_SCHEMA = 20_000
MOST_LISTED = 100_000
MOST_OUTPUT = 32_000
"""Characters of the schema of a tool, of all that a server lists, and of what a tool gives."""

T = TypeVar("T")
Ask = Callable[[Client], Coroutine[Any, Any, T]]
Listed = Callable[[str, tuple[RemoteTool, ...] | ToolFault], None]
Returned = Callable[[str, str | ToolFault], None]


class McpClient:
    """The MCP servers of one session. ``listed`` and ``returned`` get the answers, on the loop."""

    def __init__(self, allowed: tuple[str, ...], listed: Listed, returned: Returned) -> None:
        self._allowed = allowed
        self._listed = listed
        self._returned = returned
        self._connections: dict[tuple[object, ...], _Connection] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by item id

    def perform(self, effect: ListTools | CallTool | CancelTool) -> None:
        """Begin to do what is wanted, or stop doing it."""
        match effect:
            case ListTools(item_id, server):
                self._begin(item_id, self._list(item_id, server))
            case CallTool(item_id, server, name, arguments):
                self._begin(item_id, self._call(item_id, server, name, arguments))
            case CancelTool(item_id):
                if (task := self._tasks.get(item_id)) is not None:
                    task.cancel()

    def close(self) -> None:
        """Nothing is called back any more. Connections close in the background."""
        for task in self._tasks.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _begin(self, item_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"mcp {item_id}")
        self._tasks[item_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(item_id, None))

    async def _list(self, item_id: str, server: Server) -> None:
        self._listed(item_id, await self._answer(server, LIST_S, _tools))

    async def _call(self, item_id: str, server: Server, name: str, arguments: str) -> None:
        async def ask(client: Client) -> str | ToolFault:
            return _output(await client.call_tool(name, given))

        given = _json_object(arguments)
        if given is None:
            fault = ToolFault("tool_execution_error", "The arguments are not a JSON object.")
            self._returned(item_id, fault)
            return
        self._returned(item_id, await self._answer(server, CALL_S, ask))

    async def _answer(self, server: Server, limit_s: float, ask: Ask[T]) -> T | ToolFault:
        """What a server answers. All that can go wrong there, in their code or in ours, is a fault."""
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(limit_s):
                connection = self._connection(server)
                return await connection.use(ask)
        except TimeoutError:
            if connection is not None and not connection.ready:
                connection.retire()
            return ToolFault("http_error", f"The MCP server did not answer in {limit_s:g} s.", 504)
        except Exception as error:
            logger.debug("MCP server %s: %r", server.label, error)
            status = connection.status if connection is not None else 0
            if connection is not None and (status or not isinstance(error, MCPError)):
                connection.retire()
            return _fault(error, status)

    def _connection(self, server: Server) -> _Connection:
        key = (server.url, server.authorization, server.headers)
        known = self._connections.get(key)
        if known is None or known.over:
            self._make_room()
            known = self._connections[key] = _Connection(server, self._allowed)
        return known

    def _make_room(self) -> None:
        for key, known in list(self._connections.items()):
            if known.over or (len(self._connections) >= MOST_CONNECTIONS and not known.users):
                known.retire()
                del self._connections[key]
        if len(self._connections) >= MOST_CONNECTIONS:
            raise ConnectionError("this session talks to too many MCP servers")


class _Connection:
    """One server, as long as it lasts. The SDK wants its contexts left by the task that entered them."""

    def __init__(self, server: Server, allowed: tuple[str, ...]) -> None:
        self.users = 0
        self._loop = asyncio.get_running_loop()
        self._transport = _Guarded(allowed)
        self._ready: asyncio.Future[Client] = self._loop.create_future()
        self._closing = asyncio.Event()
        self._retired = False
        self._task = asyncio.create_task(self._hold(server), name=f"mcp {server.label}")
        self._task.add_done_callback(_noted)

    @property
    def over(self) -> bool:
        return self._retired or self._closing.is_set() or self._task.done()

    @property
    def ready(self) -> bool:
        """The server has answered."""
        return self._ready.done()

    @property
    def status(self) -> int:
        """The HTTP status with which the server refused the last request; 0 when it did not."""
        return self._transport.refused

    def retire(self) -> None:
        """The next question is not for this one; it closes with the answer to the last."""
        self._retired = True
        if not self.users:
            self.close()

    def close(self) -> None:
        """Say goodbye to the server, for a short time."""
        self._closing.set()
        if self.ready:
            timer = self._loop.call_later(CLOSE_S, self._task.cancel)
            self._task.add_done_callback(lambda _: timer.cancel())
        else:
            self._task.cancel()

    async def use(self, ask: Ask[T]) -> T:
        """Ask once there is a connection. Raises what ended it, if it ends before the answer."""
        self.users += 1
        try:
            client = await self._unless_over(self._ready)
            return await self._unless_over(asyncio.ensure_future(ask(client)))
        finally:
            self.users -= 1
            if self._retired:
                self.retire()

    async def _unless_over(self, wanted: asyncio.Future[T]) -> T:
        try:
            either: set[asyncio.Future[Any]] = {wanted, self._task}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if wanted.done():
                return wanted.result()
            if not self._task.cancelled():
                self._task.result()
            raise ConnectionError("the connection was closed")
        finally:
            if wanted is not self._ready:
                wanted.cancel()

    async def _hold(self, server: Server) -> None:
        headers = httpx2.Headers(list(server.headers))
        if server.authorization:
            headers["Authorization"] = f"Bearer {server.authorization}"
        timeout = httpx2.Timeout(CONNECT_S, read=CALL_S)
        async with (
            httpx2.AsyncClient(
                transport=self._transport, headers=headers, timeout=timeout, trust_env=False
            ) as http,
            Client(streamable_http_client(server.url, http_client=http), cache=None) as client,
        ):
            self._ready.set_result(client)
            await self._closing.wait()


def _noted(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.debug("%s ended: %r", task.get_name(), error)


class _Guarded(httpx2.AsyncBaseTransport):
    """Goes nowhere but where the operator allows, wherever a server redirects to; takes so much, no more."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self.refused = 0
        self._allowed = allowed
        self._inner = httpx2.AsyncHTTPTransport(verify=_TLS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if not allows(self._allowed, str(request.url)):
            raise httpx2.RequestError("an address that the operator does not allow", request=request)
        if request.method == "POST":
            self.refused = 0
        request.headers["Accept-Encoding"] = "identity"  # what is packed has no size before it is unpacked
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RequestError("a packed answer that nobody asked for", request=request)
        kind = response.headers.get("content-type", "").partition(";")[0]
        if request.method == "POST" and response.status_code >= 400 and kind != "application/json":
            self.refused = response.status_code
        most = MOST_STREAMED if kind == "text/event-stream" else MOST_BYTES
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(response.stream, most),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError("an answer that is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _fault(error: BaseException, status: int) -> ToolFault:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if status:
        return ToolFault("http_error", f"The MCP server answered with HTTP status {status}.", status)
    if isinstance(error, MCPError):
        return ToolFault("protocol_error", error.message[:1_000], error.code)
    if isinstance(error, httpx2.HTTPError | OSError):
        reason = str(error) or type(error).__name__
        return ToolFault("http_error", f"The MCP server could not be reached: {reason[:200]}.", 502)
    return ToolFault("protocol_error", "The MCP server gave an answer that makes no sense.", -32603)


async def _tools(client: Client) -> tuple[RemoteTool, ...]:
    """All tools of a server, within bounds."""
    tools: list[RemoteTool] = []
    cursor: str | None = None
    left = MOST_LISTED
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in filter(None, map(_remote, page.tools)):
            left -= len(tool.name) + len(tool.description) + len(tool.schema) + len(tool.annotations)
            if left < 0:
                return tuple(tools)
            tools.append(tool)
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(tools)


def _remote(tool: Tool) -> RemoteTool | None:
    """None for a tool that no model can be told of."""
    hints = tool.annotations
    try:
        schema = json.dumps(tool.input_schema, allow_nan=False)
        annotations = "" if hints is None else hints.model_dump_json(by_alias=True, exclude_none=True)
    except (ValueError, RecursionError):
        return None
    if not tool.name or len(tool.name) > 128 or len(schema) > MOST_SCHEMA:
        return None
    read_only = hints is not None and hints.read_only_hint is True
    return RemoteTool(tool.name, (tool.description or "")[:4_096], schema, annotations, read_only)


def _output(result: CallToolResult) -> str | ToolFault:
    text = "\n".join(map(_text, result.content))
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content)
    if len(text) > MOST_OUTPUT:
        text = f"{text[:MOST_OUTPUT]}\n[{len(text) - MOST_OUTPUT} more characters were left out]"
    if result.is_error:
        return ToolFault("tool_execution_error", text or "The tool failed.")
    return text


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent(text=text):
            return text
        case EmbeddedResource(resource=TextResourceContents(text=text)):
            return text
    return f"[{block.type} left out]"


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
