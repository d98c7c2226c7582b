"""Tries TURN servers as calls would: an allocation, a packet there and back, and what must be refused."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aioice import stun, turn

from server.ice import IceServer
from server.turn import Turn, parse_turn_url

TIMEOUT = 5.0
AGAIN = 0.2
"""Seconds after which a packet that was not heard is sent again."""
FORBIDDEN = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.0.1")
"""Peers that no relay may reach; the third is where clouds keep keys."""

Address = tuple[str, int]


class CheckFailed(Exception):
    """Something is not as a call needs it. ``str(error)`` says what, in a few words."""


class Unsafe(CheckFailed):
    """It does more than a call needs."""


class _End(asyncio.DatagramProtocol):
    """One end of a path: a socket, or a relay."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.refused: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.heard.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        if not self.refused.done():
            self.refused.set_result(exc)

    @property
    def address(self) -> Address:
        host, port = self.transport.get_extra_info("sockname")[:2]
        return host, port


async def tried(server: IceServer, turn: Turn, public_ip: str) -> AsyncIterator[str]:
    """Try one of the servers of ``turn`` as calls would, and say what works, in a few words each.

    ``public_ip``: address of this machine, if another than it knows. Raises CheckFailed and OSError.
    """
    if turn.serves_server:
        took = await to_another_relay(server)
        yield f"from relay to relay and back in {took * 1000:.0f} ms"
    if turn.serves_callers:
        yield await _from_the_relay_to_here(server, turn, public_ip)
    open_to = [peer for peer in FORBIDDEN if not await refuses(server, peer)]
    if open_to:
        raise Unsafe(f"it relays to {', '.join(open_to)}")
    yield f"refuses to relay to {', '.join(FORBIDDEN)}"


async def _from_the_relay_to_here(server: IceServer, turn: Turn, public_ip: str) -> str:
    """Behind a NAT this machine cannot be reached, and need not be if it takes relays itself."""
    here = public_ip or address_towards(parse_turn_url(server.url)[0])
    try:
        took = await to_this_machine(server, here)
    except CheckFailed as error:
        if not turn.serves_server:
            raise
        return f"this machine is reached through a relay of its own only: {error}"
    return f"from the relay to {here} and back in {took * 1000:.0f} ms"


async def to_this_machine(server: IceServer, address: str) -> float:
    """Seconds for a packet from a relay to a socket here, known to it as ``address``, and back again.

    :raises CheckFailed: if it does not come.
    """
    async with _allocated(server) as relay, _open(":" in address) as end:
        return await _there_and_back(relay, end, (address, end.address[1]))


async def to_another_relay(server: IceServer) -> float:
    """Seconds for a packet from one relay to another and back again. Raises CheckFailed."""
    async with _allocated(server) as relay, _allocated(server) as end:
        return await _there_and_back(relay, end, end.address)


async def refuses(server: IceServer, peer: str) -> bool:
    """Whether a relay refuses to speak to ``peer``. Raises CheckFailed."""
    async with _allocated(server) as relay:
        relay.transport.sendto(b"?", (peer, 9))
        await asyncio.wait([relay.refused], timeout=TIMEOUT)
        return relay.refused.done() and isinstance(relay.refused.result(), stun.TransactionFailed)


def address_towards(host: str) -> str:
    """Address of this machine from which packets to ``host`` leave. Raises OSError."""
    family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])


@asynccontextmanager
async def _allocated(server: IceServer) -> AsyncIterator[_End]:
    host, port, kind = parse_turn_url(server.url)
    try:
        async with asyncio.timeout(TIMEOUT):
            transport, relay = await turn.create_turn_endpoint(
                _End,
                server_addr=(host, port),
                username=server.username,
                password=server.credential,
                lifetime=60,
                ssl=kind == "tls" or None,
                transport="udp" if kind == "udp" else "tcp",
            )
    except TimeoutError as error:
        raise CheckFailed("it does not answer") from error
    except (OSError, stun.TransactionError) as error:
        raise CheckFailed(_reason(error)) from error
    try:
        yield relay
    finally:
        transport.close()


@asynccontextmanager
async def _open(ipv6: bool) -> AsyncIterator[_End]:
    loop = asyncio.get_running_loop()
    transport, end = await loop.create_datagram_endpoint(_End, local_addr=("::" if ipv6 else "0.0.0.0", 0))
    try:
        yield end
    finally:
        transport.close()


async def _there_and_back(relay: _End, end: _End, address: Address) -> float:
    """A relay lets in only what comes from where it has sent to, so at first both send."""
    trip = asyncio.create_task(_round_trip(relay, end, address))
    either: set[asyncio.Future[Any]] = {trip, relay.refused}
    try:
        await asyncio.wait(either, timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if trip.done():
            return trip.result()
    finally:
        trip.cancel()
    if relay.refused.done():
        raise CheckFailed(f"it does not relay to {address[0]}: {_reason(relay.refused.result())}")
    raise CheckFailed(f"no packet came through between the relay and {address[0]}")


async def _round_trip(relay: _End, end: _End, address: Address) -> float:
    await asyncio.gather(_pass(relay, end, address), _pass(end, relay, relay.address))
    began = time.monotonic()
    await _pass(relay, end, address)
    await _pass(end, relay, relay.address)
    return time.monotonic() - began


async def _pass(sender: _End, receiver: _End, address: Address) -> None:
    """Send a packet again and again until it is heard."""
    token = secrets.token_bytes(16)
    while True:
        sender.transport.sendto(token, address)
        try:
            async with asyncio.timeout(AGAIN):
                while await receiver.heard.get() != token:
                    pass
                return
        except TimeoutError:
            continue


def _reason(error: Exception) -> str:
    if isinstance(error, stun.TransactionFailed):
        code, words = error.response.attributes["ERROR-CODE"]
        return f"{code} {words}"
    return str(error) or type(error).__name__
