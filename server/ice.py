"""Which STUN and TURN servers a peer connection is given: only those that answered when last asked.

aiortc waits five seconds for a server that does not answer, in every call, and with no configuration at all
it asks Google. So servers are probed in the background, and a call gets an explicit list, which may be empty.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from aioice import stun, turn
from aiortc import RTCConfiguration, RTCIceServer
from aiortc.rtcicetransport import parse_stun_turn_uri

logger = logging.getLogger(__name__)

PROBE_TIMEOUT = 2.0
PROBE_AGAIN = 60.0
"""A call that comes this many seconds after the last probe sets off another one, without waiting for it."""
PATIENCE = 0.2
"""Seconds that a call waits at least for the servers that answered when last asked."""
MOST_PATIENCE = 1.0

NO_ANSWER = (OSError, TimeoutError, stun.TransactionError)
"""What :func:`ask` raises."""

_WITH_USER = re.compile(r"(?P<scheme>turns?):(?P<user>[^:@]*):(?P<password>[^@]*)@(?P<rest>.*)")


@dataclass(frozen=True, slots=True)
class IceServer:
    """A server that helps two peers find each other."""

    url: str
    """As in RFC 7064 and RFC 7065, without user or password."""
    username: str | None = None
    credential: str | None = field(default=None, repr=False)


def parse_ice_server(text: str) -> IceServer:
    """``stun:host:port``, ``turn:host:port?transport=tcp`` or ``turn:user:password@host:port``.

    User and password are percent-decoded.

    :raises ValueError: if it is none of these.
    """
    match = _WITH_USER.fullmatch(text.strip())
    if match is None:
        server = IceServer(text.strip())
    else:
        user, password = unquote(match["user"]), unquote(match["password"])
        server = IceServer(f"{match['scheme']}:{match['rest']}", user, password)
    parse_stun_turn_uri(server.url)
    return server


Logins = Callable[[str], Iterable[IceServer]]
"""Servers with a new login under the name that is given."""


def no_logins(_name: str) -> tuple[IceServer, ...]:
    return ()


class IceServers:
    """The configured servers and which of them answer.

    Nothing runs between probes: the next one is set off by a call.

    :param logins: further servers, with a login for each call.
    """

    def __init__(self, servers: Iterable[str | IceServer] = (), logins: Logins = no_logins) -> None:
        self._servers = [x if isinstance(x, IceServer) else parse_ice_server(x) for x in servers]
        self._logins = logins
        self._answering: dict[str, float] = {}
        """Seconds that each server took, by URL."""
        self._probed: float | None = None
        self._probing: asyncio.Task[None] | None = None

    def configuration(self, name: str = "") -> RTCConfiguration:
        """For one peer connection, from what is known now, with logins under ``name``."""
        self.probe()
        answering = [x for x in self._named(name) if x.url in self._answering]
        return RTCConfiguration(iceServers=[RTCIceServer(x.url, x.username, x.credential) for x in answering])

    @property
    def patience(self) -> float:
        """Seconds that a call may wait for these servers: twice what they took when last asked."""
        return min(MOST_PATIENCE, max(PATIENCE, 2 * max(self._answering.values(), default=0.0)))

    @property
    def relays(self) -> bool:
        """Whether a call can expect a relay."""
        return any(url.startswith("turn") for url in self._answering)

    def missed(self) -> None:
        """A call got no relay though :attr:`relays`: do without them until they answer again."""
        self._answering = {url: took for url, took in self._answering.items() if not url.startswith("turn")}
        self._probed = None
        self.probe()

    def _named(self, name: str) -> list[IceServer]:
        return [*self._servers, *self._logins(name)]

    def probe(self) -> None:
        """Ask all servers in the background, unless that was done lately."""
        now = asyncio.get_running_loop().time()
        lately = self._probed is not None and now - self._probed < PROBE_AGAIN
        if not lately and self._probing is None and self._named("probe"):
            self._probed = now
            self._probing = asyncio.create_task(self._probe(), name="ice probe")

    async def probed(self) -> None:
        """Wait for the probe that is under way, if any."""
        if self._probing is not None:
            await asyncio.wait([self._probing])

    async def close(self) -> None:
        """Ask no more. Idempotent."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])
            self._probing = None

    async def _probe(self) -> None:
        try:
            servers = self._named("probe")
            took = await asyncio.gather(*map(_answers, servers))
            answering = {x.url: t for x, t in zip(servers, took, strict=True) if t is not None}
            if answering.keys() != self._answering.keys():
                logger.info("ICE servers that answer: %s", list(answering))
            self._answering = answering
        finally:
            self._probing = None


async def _answers(server: IceServer) -> float | None:
    """Seconds until the server gives what a call would ask of it: an address, or an allocation."""
    began = time.monotonic()
    try:
        await ask(server)
    except NO_ANSWER as error:
        logger.warning("ICE server %s does not answer: %r", server.url, error)
        return None
    return time.monotonic() - began


async def ask(server: IceServer) -> None:
    """Ask the server for what a call would ask of it: an address, or an allocation.

    :raises NO_ANSWER: if it does not give that, within ``PROBE_TIMEOUT``.
    """
    uri = parse_stun_turn_uri(server.url)
    async with asyncio.timeout(PROBE_TIMEOUT):
        if uri["scheme"].startswith("stun"):
            await _bind((uri["host"], uri["port"]))
        else:
            await _allocate(server, (uri["host"], uri["port"]), uri["transport"], uri["scheme"] == "turns")


class _Binding(asyncio.DatagramProtocol):
    """Sends one STUN binding request and waits for any answer to it (RFC 8489 section 6.3)."""

    def __init__(self) -> None:
        self.request = stun.Message(message_method=stun.Method.BINDING, message_class=stun.Class.REQUEST)
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        try:
            message = stun.parse_message(data)
        except ValueError:
            return
        if message.transaction_id == self.request.transaction_id and not self.answered.done():
            self.answered.set_result(None)


async def _bind(address: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(_Binding, remote_addr=address)
    try:
        while not protocol.answered.done():
            transport.sendto(bytes(protocol.request))
            await asyncio.wait([protocol.answered], timeout=stun.RETRY_RTO)
    finally:
        transport.close()


async def _allocate(server: IceServer, address: tuple[str, int], transport: str, tls: bool) -> None:
    relayed, _ = await turn.create_turn_endpoint(
        asyncio.DatagramProtocol,
        server_addr=address,
        username=server.username,
        password=server.credential,
        lifetime=60,
        ssl=tls or None,
        transport=transport,
    )
    relayed.close()
