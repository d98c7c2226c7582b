"""What the doors of the Realtime API share: refusals, the headers of other origins, keys and units."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from server.errors import CORS, error_response, readable
from server.peer import Unit
from units.pool import PoolFull
from units.realtime.errors import ProtocolError
from units.realtime.parse import parse_event
from units.realtime.service import random_id

MALFORMED = (ValueError, LookupError, web.RequestPayloadError, HttpProcessingError)
"""What reading a body raises that is not what its headers say."""
BODY_TIMEOUT = 10.0
"""Seconds for a whole body to arrive."""
MOST_JSON = 1024 * 1024
REALTIME = "/v1/realtime"
"""Where everything is; itself, the WebSocket door and the older WebRTC one."""
RETRY_AFTER = 2
"""Seconds after which a refused client may try again."""
BAD_KEY, BAD_REQUEST = 3000, 4000
"""Close codes of the hosted service for WebSocket clients that are turned away."""
CLOSE_S = 3.0
"""For a WebSocket client to take what is still queued for it, and to answer the closing handshake."""

FRESH = {"Cache-Control": "no-store"}
"""Headers of an answer that nobody is to keep."""
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, X-OpenAI-Agents-SDK, OpenAI-Beta, OpenAI-Safety-Identifier, "
        "OpenAI-Organization, OpenAI-Project, User-Agent, traceparent, tracestate"
    ),
    "Access-Control-Max-Age": "600",
}


class ClaimFrom(Protocol):
    """A pool of units, as far as this door knows it."""

    def claim(self) -> Unit:
        """:raises PoolFull: if no unit is free."""


class Refusal(Exception):
    """An HTTP error answer, in the shape that OpenAI's clients read."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        retry_after: int = RETRY_AFTER,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def response(self) -> web.Response:
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.status in (429, 503):
            headers = {"Retry-After": str(self.retry_after)}
        return error_response(self.status, self.code, str(self), param=self.param, headers=headers)


@contextmanager
def claimed(pool: ClaimFrom) -> Iterator[Unit]:
    """A unit of ``pool``, given back if the block fails. Raises Refusal when none is free."""
    try:
        unit = pool.claim()
    except PoolFull as error:
        raise Refusal(503, "no_capacity", "All units are in use. Try again in a moment.") from error
    try:
        yield unit
    except BaseException:
        if unit.session is not None:
            unit.session.close("internal error")
        raise


def answering(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """``handler`` with refusals as responses and the headers that let a page on another origin read them."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            response = await handler(request)
        except Refusal as refusal:
            response = refusal.response()
        except ProtocolError as error:
            response = error_response(400, error.code, error.message, param=error.param)
        return readable(response)

    return handle


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    """While a body is read. Raises Refusal when it takes too long."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            yield
    except TimeoutError as error:
        message = f"The body did not arrive within {BODY_TIMEOUT:g} s."
        raise Refusal(408, "request_timeout", message) from error


def parsed(text: str, what: str) -> dict[str, Any]:
    """The object in ``text``, which is JSON within the bounds of events. Raises Refusal."""
    try:
        return parse_event(text, limit=MOST_JSON)
    except ProtocolError as error:
        code = error.code if error.code == "invalid_json" else "invalid_type"
        message = error.message.replace("event", what, 1)
        raise Refusal(400, code, message, what if what == "session" else None) from error


async def turn_away(
    request: web.Request, close: int, message: str, code: str | None
) -> web.WebSocketResponse:
    """Connect, say why not, and close: a browser tells its page nothing of a handshake that was refused."""
    socket = web.WebSocketResponse(protocols=("realtime",), timeout=CLOSE_S)
    await socket.prepare(request)
    error = ProtocolError(code, message)
    event = {"type": "error", "event_id": random_id("event"), "error": {**error.body(), "event_id": None}}
    with suppress(ConnectionError):
        await socket.send_json(event)
        await socket.close(code=close, message=f"{error.type}.{code}".encode())
    return socket


async def preflight(_request: web.Request) -> web.Response:
    return web.Response(status=204, headers={**CORS, **_PREFLIGHT})


_KEY_PROTOCOL = "openai-insecure-api-key."


def offered_key(request: web.Request) -> str | None:
    """The key that a client sent: as a bearer header, or in a WebSocket subprotocol, as browsers must."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    names = [name.strip() for name in offered]
    return next((name.removeprefix(_KEY_PROTOCOL) for name in names if name.startswith(_KEY_PROTOCOL)), None)
