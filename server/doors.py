"""What the doors of the Realtime API share: refusals, the headers of other origins, keys and units."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from server.errors import error_response
from server.peer import Unit
from units.pool import PoolFull
from units.realtime.errors import ProtocolError

REALTIME = "/v1/realtime"
"""Where everything is; itself, the WebSocket door and the older WebRTC one."""
RETRY_AFTER = "2"
"""Seconds after which a refused client may try again."""

CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Location",
}
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": (
        "Authorization, Content-Type, X-OpenAI-Agents-SDK, OpenAI-Beta, OpenAI-Safety-Identifier, "
        "OpenAI-Organization, OpenAI-Project, User-Agent"
    ),
    "Access-Control-Max-Age": "600",
}


class ClaimFrom(Protocol):
    """A pool of units, as far as this door knows it."""

    def claim(self) -> Unit:
        """:raises PoolFull: if no unit is free."""


class Refusal(Exception):
    """An HTTP error answer, in the shape that OpenAI's clients read."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param

    def response(self) -> web.Response:
        headers = {"Retry-After": RETRY_AFTER} if self.status == 503 else {}
        return error_response(self.status, self.code, str(self), param=self.param, headers=headers)


def claimed(pool: ClaimFrom) -> Unit:
    """A unit of ``pool``. Raises Refusal when none is free."""
    try:
        return pool.claim()
    except PoolFull as error:
        raise Refusal(503, "no_capacity", "All units are in use. Try again in a moment.") from error


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
        if not response.prepared:
            for name, value in CORS.items():
                response.headers.setdefault(name, value)
        return response

    return handle


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
