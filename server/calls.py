"""The HTTP door to WebRTC: an offer comes in, an answer and the address of the call go out.

Follows ``POST /v1/realtime/calls`` of the OpenAI Realtime API, with its error bodies. A unit is claimed
before any work is done on an offer, and given back on every way out that is not a call.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from aiohttp import BodyPartReader, web

from server.callers import Caller, caller_of
from server.client_secrets import ClientSecrets
from server.doors import (
    MALFORMED,
    REALTIME,
    ClaimFrom,
    Refusal,
    answering,
    claimed,
    in_time,
    offered_key,
    parsed,
    preflight,
)
from server.ice import IceServer, IceServers, no_logins
from server.media import Media, unread
from server.peer import EndedError, Limits, NoPortError, Peer
from server.ports import confine
from server.sdp import OfferError
from server.turn import Turn
from server.watch import Begun, Watcher, trace_of, watched_by
from units.scope import CancelScope, entered
from units.session import SHUTTING_DOWN

logger = logging.getLogger(__name__)


PATH = "/v1/realtime/calls"
MAX_BODY = 256 * 1024


class CallSettings(Protocol):
    """What this door is told by the settings."""

    @property
    def ice_servers(self) -> Sequence[IceServer]: ...

    @property
    def turn(self) -> Turn | None: ...

    @property
    def public_ip(self) -> str:
        """Empty: addresses are announced as they are."""

    @property
    def udp_range(self) -> range | None:
        """None: any port."""


@dataclass(frozen=True, slots=True)
class _Call:
    peer: Peer
    owner: str
    """Of the key that began it; see :class:`server.callers.Caller`."""


class Calls:
    """The calls of this server, by id, and the handlers of their routes."""

    def __init__(
        self,
        pool: ClaimFrom,
        settings: CallSettings,
        secrets: ClientSecrets,
        limits: Limits = Limits(),  # noqa: B008
        watchers: Sequence[Watcher] = (),
        measured: Callable[[Media], None] = unread,
    ) -> None:
        self._pool = pool
        self._watchers = watchers
        self._measured = measured
        self._secrets = secrets
        self._public_ip = settings.public_ip or None
        self._ports = settings.udp_range
        turn = settings.turn if settings.turn and settings.turn.serves_server else None
        self._ice = IceServers(settings.ice_servers, turn.servers if turn else no_logins)
        self._limits = limits
        self._calls: dict[str, _Call] = {}
        self._ending: set[Peer] = set()

    def __len__(self) -> int:
        """Calls that hold a unit."""
        return len(self._calls)

    async def start(self) -> None:
        """Ask the ICE servers, so that the first call knows which of them answer, and keep to the ports."""
        if self._ports is not None:
            confine(asyncio.get_running_loop(), self._ports)
        self._ice.probe()

    async def create(self, request: web.Request) -> web.Response:
        """Answer an offer: ``application/sdp``, or a form with ``sdp`` and perhaps ``session``."""
        settings = self._secrets.settings(offered_key(request))
        offer, session = await _read_in_time(request)
        settings = (*settings, *map(self._secrets.understood, session))
        call_id = f"rtc_{uuid.uuid4().hex}"
        with entered(CancelScope(call_id, ids={"call": call_id})):
            return await self._begin(request, call_id, offer, settings)

    async def _begin(
        self, request: web.Request, call_id: str, offer: str, settings: Sequence[dict[str, Any]]
    ) -> web.Response:
        peer = self._open(request, call_id, settings)
        answer = None
        try:
            answer = await self._answer(peer, offer, caller_address(request))
        finally:
            if answer is None:
                peer.close("the offer was not answered")
            elif request.transport is None or request.transport.is_closing():
                peer.close("the client went away before it was answered")
        location = f"{PATH}/{peer.call_id}"
        return web.Response(
            status=201, text=answer, content_type="application/sdp", headers={"Location": location}
        )

    async def hang_up(self, request: web.Request) -> web.Response:
        """End a call."""
        self.peer(request.match_info["call_id"], caller_of(request)).close("hung up over HTTP")
        return web.Response(status=204 if request.method == "DELETE" else 200)

    def peer(self, call_id: str, caller: Caller) -> Peer:
        """The call with this id, if it is ``caller``'s. Raises Refusal."""
        call = self._calls.get(call_id)
        if call is None or call.owner != caller.owner:
            raise Refusal(404, "call_id_not_found", "No session found for the provided call_id", "")
        return call.peer

    async def close_all(self, reason: str = SHUTTING_DOWN) -> None:
        """End all calls, and wait until nothing is left of them."""
        for call in list(self._calls.values()):
            call.peer.close(reason)
        await asyncio.gather(*(peer.wait_closed() for peer in list(self._ending)))
        await self._ice.close()

    def _open(self, request: web.Request, call_id: str, settings: Sequence[dict[str, Any]]) -> Peer:
        caller = caller_of(request)
        ended = caller.begin()
        with ExitStack() as on_failure:
            on_failure.callback(ended)
            on_failure.callback(caller.take_back)
            closed = partial(self._closed, ended)
            with claimed(self._pool) as unit:
                ice = self._ice.configuration(call_id)
                begun = Begun(call_id, "webrtc", unit.index, trace_of(request.headers))
                observers = watched_by(self._watchers, begun)
                peer = Peer(call_id, unit, ice, closed, self._limits, settings, observers, self._measured)
            on_failure.pop_all()
        if not peer.closed:
            self._calls[call_id] = _Call(peer, caller.owner)
        return peer

    async def _answer(self, peer: Peer, offer: str, caller: str | None) -> str:
        relays = self._ice.relays
        try:
            answer = await peer.answer(offer, self._public_ip, self._ice.patience, caller if relays else None)
        except OfferError as error:
            raise Refusal(400, "invalid_offer", f"Invalid offer: {error}.") from error
        except EndedError as error:
            raise Refusal(503, "call_ended", "The call ended before it could be answered.") from error
        except NoPortError as error:
            raise Refusal(503, "no_media_port", self._no_port) from error
        except TimeoutError as error:
            raise Refusal(503, "setup_timeout", "The call could not be set up in time.") from error
        if relays and " typ relay " not in answer:
            self._ice.missed()
        return answer

    @property
    def _no_port(self) -> str:
        if self._ports is None:
            return "No address or UDP port is left for media."
        return f"All UDP ports from {self._ports[0]} to {self._ports[-1]} are in use. Try again in a moment."

    def _closed(self, ended: Callable[[], None], peer: Peer) -> None:
        ended()
        self._calls.pop(peer.call_id, None)
        self._ending.add(peer)
        task = asyncio.get_running_loop().create_task(peer.wait_closed())
        task.add_done_callback(lambda _: self._ending.discard(peer))


def setup_calls(
    app: web.Application,
    pool: ClaimFrom,
    settings: CallSettings,
    secrets: ClientSecrets,
    watchers: Sequence[Watcher] = (),
    measured: Callable[[Media], None] = unread,
) -> Calls:
    """Add the routes of WebRTC calls to ``app``, and end all calls when it shuts down."""
    calls = Calls(pool, settings, secrets, watchers=watchers, measured=measured)
    routes: list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]] = [
        ("POST", PATH, calls.create),
        ("POST", REALTIME, calls.create),
        ("POST", PATH + "/{call_id}/hangup", calls.hang_up),
        ("DELETE", PATH + "/{call_id}", calls.hang_up),
    ]
    for method, path, handler in routes:
        app.router.add_route(method, path, answering(handler))
        app.router.add_route("OPTIONS", path, preflight)

    async def shut_down(_app: web.Application) -> None:
        await calls.close_all()

    async def start(_app: web.Application) -> None:
        await calls.start()

    app.on_startup.append(start)
    app.on_shutdown.append(shut_down)
    return calls


def caller_address(request: web.Request) -> str | None:
    """The public address a request came from, as the nearest proxy has it, if there is one.

    To be tried as a peer's address, not to be trusted: an offer may name any address just as well.
    """
    text = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip() or request.remote or ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    return str(address) if address.is_global else None


async def _read_in_time(request: web.Request) -> tuple[str, tuple[dict[str, Any], ...]]:
    """:func:`_read_body`, from a client that may be slow or leave."""
    try:
        async with in_time():
            return await _read_body(request)
    except ConnectionError as error:
        logger.info("a client left before its offer had arrived")
        raise Refusal(400, "client_left", "The body ended early.") from error


async def _read_body(request: web.Request) -> tuple[str, tuple[dict[str, Any], ...]]:
    """The offer, and the form's ``session``, if there is one."""
    if (request.content_length or 0) > MAX_BODY:
        raise _too_large()
    if request.content_type == "application/sdp":
        return _decoded(await _limited(request.content.readany, MAX_BODY)), ()
    if request.content_type == "multipart/form-data":
        fields = await _read_form(request)
        if "sdp" not in fields:
            raise Refusal(400, "missing_required_parameter", "Missing required parameter: 'sdp'.", "sdp")
        session = fields.get("session")
        return fields["sdp"], () if session is None else (_session(session),)
    raise Refusal(
        415, "unsupported_content_type", "Send the offer as application/sdp or multipart/form-data."
    )


async def _read_form(request: web.Request) -> dict[str, str]:
    """Fields by name, whether a client sends them as text, with a type of their own, or as files."""
    fields: dict[str, str] = {}
    left = MAX_BODY
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                continue
            data = await _limited(part.read_chunk, left)
            left -= len(data)
            fields[part.name or ""] = _decoded(data)
    except (*MALFORMED, AssertionError) as error:
        raise Refusal(400, "invalid_form", f"Invalid multipart form: {error}.") from error
    return fields


async def _limited(read: Callable[[], Awaitable[bytes]], limit: int) -> bytes:
    body = bytearray()
    while chunk := await read():
        body += chunk
        if len(body) > limit:
            raise _too_large()
    return bytes(body)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refusal(400, "invalid_offer", "Invalid offer: it is not UTF-8.") from error


def _session(session: str) -> dict[str, Any]:
    return parsed(session, "session")


def _too_large() -> Refusal:
    return Refusal(413, "request_too_large", f"The body has more than {MAX_BODY} bytes.")
