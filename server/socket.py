"""The WebSocket door: ``GET /v1/realtime``, for clients that send and play the sound themselves.

Follows the Realtime API of OpenAI: one event in a text message, sound as base64 in events. A client gets a
unit like a WebRTC caller, and the same session on it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from server.callers import caller_of
from server.calls import Calls
from server.client_secrets import ClientSecrets
from server.doors import (
    BAD_KEY,
    BAD_REQUEST,
    CLOSE_S,
    REALTIME,
    ClaimFrom,
    Refusal,
    answering,
    claimed,
    offered_key,
    turn_away,
)
from server.peer import Session
from server.watch import Begun, Watcher, trace_of, watched_by
from units.realtime.errors import ProtocolError
from units.realtime.sound import pieces
from units.scope import CancelScope, entered
from units.session import SHUTTING_DOWN

logger = logging.getLogger(__name__)

MAX_MESSAGE = 16 * 1024 * 1024
"""Characters of the longest client event: 15 MB of sound is the most that ``append`` may bring."""
LARGE = 262_144
"""Characters of a message above which a long piece of sound is taken apart before it is handled."""
MAX_WAITING = 32_000_000
"""Bytes of memory for a client that does not read, who is cut off then: ten minutes of speech."""
UNHEARD = 100
"""Pieces of sound that wait for the ears, above which nothing more is read from the client."""
PING_S = 20.0
MOST_CONTROLS = 8
"""Connections that control one call."""

LEFT = "the client left"

Event = dict[str, Any]


class SocketTransport:
    """The client's end of one session, before and while there is a connection."""

    plays_audio = False
    max_message = MAX_MESSAGE

    def __init__(self, connection: asyncio.Transport | None) -> None:
        self._connection = connection
        self._socket = web.WebSocketResponse(
            protocols=("realtime",), heartbeat=PING_S, max_msg_size=MAX_MESSAGE, timeout=CLOSE_S
        )
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue()
        self._size = 0
        self.reason: str | None = None
        """Why the session is over; None while it is not."""
        self.on_slow: Callable[[str], None] = _ignore
        """Called when the client does not read."""

    def send(self, event: Event) -> None:
        """Queue an event."""
        if self.reason is not None:
            return
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        self._size += sys.getsizeof(text)
        self._waiting.put_nowait(text)
        if self._size > MAX_WAITING:
            self._cut_off()
            self.on_slow("the client does not read its events")

    def close(self, reason: str) -> None:
        """The session is over. What is queued is still sent, if the client takes it in time."""
        self.reason = reason
        self._waiting.put_nowait(None)
        asyncio.get_running_loop().call_later(CLOSE_S, self._cut_off)

    def _cut_off(self) -> None:
        """Forget what is queued, here and in the connection, which would wait for the client for good. Where
        the connection is closed and nothing is left to send, this changes nothing."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        if self._connection is not None:
            self._connection.abort()

    async def run(
        self, request: web.Request, session: Session, handle: Callable[[str | bytes], None]
    ) -> web.StreamResponse:
        """Connect, write what is queued and hand over what arrives, until session or client are gone."""
        await self._socket.prepare(request)
        writer = asyncio.create_task(self._write(), name="websocket writer")
        try:
            async for message in self._socket:
                if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                    await self._hand_over(message.data, session, handle)
        finally:
            if self.reason is None:
                vanished = isinstance(self._socket.exception(), TimeoutError)  # it answered no ping
                self.close("the client has fallen silent" if vanished else LEFT)
            with suppress(TimeoutError):
                await asyncio.wait_for(writer, CLOSE_S)
        return self._socket

    async def _hand_over(
        self, message: str | bytes, session: Session, handle: Callable[[str | bytes], None]
    ) -> None:
        parts = [message]
        if isinstance(message, str) and len(message) > LARGE:
            parts = [*await asyncio.to_thread(pieces, message, MAX_MESSAGE)]
        for part in parts:
            handle(part)
            await asyncio.sleep(0)  # for the others
            while session.unheard > UNHEARD:  # noqa: ASYNC110 - nobody tells when the ears get on
                await asyncio.sleep(0.05)

    async def _write(self) -> None:
        with suppress(ConnectionError):
            while (text := await self._waiting.get()) is not None:
                await self._socket.send_str(text)
                self._size -= sys.getsizeof(text)
            await self._socket.close(code=_code(self.reason), message=(self.reason or "").encode()[:120])


class Sockets:
    """The WebSocket sessions of this server."""

    def __init__(
        self,
        pool: ClaimFrom,
        secrets: ClientSecrets,
        calls: Calls,
        *,
        strict: bool = False,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._pool = pool
        self._watchers = watchers
        self._strict = strict
        self._secrets = secrets
        self._calls = calls
        self._open: set[Session] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """One session, from the handshake to its end."""
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise Refusal(426, "upgrade_required", "Connect with a WebSocket, or POST an SDP offer.")
        try:
            settings = self._settings(request)
        except Refusal as refusal:
            return await turn_away(request, BAD_KEY, str(refusal), refusal.code)
        except ProtocolError as error:
            return await turn_away(request, BAD_REQUEST, error.message, error.code)
        if request.query.get("intent") == "transcription":
            settings = ({"type": "transcription"}, *settings)
        transport, caller = SocketTransport(request.transport), caller_of(request)
        if "call_id" in request.query:
            peer = self._calls.peer(request.query["call_id"], caller)
            return await self._join(request, transport, peer.session)
        ended = caller.begin()
        call_id = f"ws_{uuid.uuid4().hex}"
        try:
            with entered(CancelScope(call_id, ids={"call": call_id})):
                return await self._converse(request, call_id, transport, settings)
        except Refusal:
            caller.take_back()
            raise
        finally:
            ended()

    async def _converse(
        self, request: web.Request, call_id: str, transport: SocketTransport, settings: tuple[Event, ...]
    ) -> web.StreamResponse:
        with claimed(self._pool) as unit:
            begun = Begun(call_id, "websocket", unit.index, trace_of(request.headers))
            session = unit.open(transport, settings, watched_by(self._watchers, begun))
        transport.on_slow = session.close
        self._open.add(session)
        try:
            return await transport.run(request, session, session.handle)
        finally:
            self._open.discard(session)
            session.close(transport.reason or LEFT)

    def _settings(self, request: web.Request) -> tuple[Event, ...]:
        """What the client's key says of its session. Raises Refusal, and when strict ProtocolError."""
        settings = self._secrets.settings(offered_key(request))
        if self._strict and "OpenAI-Beta" in request.headers:
            message = "The Realtime API's beta is not served: leave out the OpenAI-Beta header."
            raise ProtocolError("beta_api_shape_disabled", message)
        if self._strict and not settings and not {"model", "call_id", "intent"} & set(request.query):
            raise ProtocolError("missing_model", "You must provide a model parameter.")
        return settings

    async def _join(
        self, request: web.Request, transport: SocketTransport, session: Session
    ) -> web.StreamResponse:
        """Control of a WebRTC call from elsewhere, until either ends. Raises Refusal."""
        if session.joined >= MOST_CONTROLS:
            message = f"{MOST_CONTROLS} connections control this call already. Close one first."
            raise Refusal(429, "too_many_sessions", message)
        session.join(transport)
        transport.on_slow = transport.close
        try:
            return await transport.run(request, session, partial(session.handle, sender=transport))
        finally:
            session.leave(transport)

    async def close_all(self, reason: str = SHUTTING_DOWN) -> None:
        """End all sessions."""
        for session in list(self._open):
            session.close(reason)


def setup_sockets(
    app: web.Application,
    pool: ClaimFrom,
    secrets: ClientSecrets,
    calls: Calls,
    *,
    strict: bool = False,
    watchers: Sequence[Watcher] = (),
) -> Sockets:
    """Add the route of WebSocket sessions to ``app``, and end them all when it shuts down.

    ``strict``: refuse what the hosted service refuses.
    """
    sockets = Sockets(pool, secrets, calls, strict=strict, watchers=watchers)
    app.router.add_route("GET", REALTIME, answering(sockets.connect))

    async def shut_down(_app: web.Application) -> None:
        await sockets.close_all()

    app.on_shutdown.append(shut_down)
    return sockets


def _code(reason: str | None) -> int:
    codes = {
        SHUTTING_DOWN: WSCloseCode.GOING_AWAY,
        "internal error": WSCloseCode.INTERNAL_ERROR,
    }
    return codes.get(reason or "", WSCloseCode.OK)


def _ignore(_reason: str) -> None: ...
