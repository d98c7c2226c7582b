from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from typing import Any

import pytest

from server.ports import confine, parse_ports

PORTS = range(21_310, 21_313)


@pytest.fixture
async def sockets() -> AsyncIterator[list[Any]]:
    opened: list[Any] = []
    yield opened
    for transport in opened:
        transport.close()


async def opened(sockets: list[Any], port: int = 0) -> int:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", port)
    )
    sockets.append(transport)
    return int(transport.get_extra_info("sockname")[1])


def test_a_range_has_both_its_ends() -> None:
    assert parse_ports("50000-50100") == range(50_000, 50_101)
    assert len(parse_ports("50000-50000")) == 1


@pytest.mark.parametrize("text", ["", "50000", "2-1", "50100-50000", "1023-2000", "60000-65536", "a-b", "-5"])
def test_other_texts_are_no_ranges(text: str) -> None:
    with pytest.raises(ValueError, match="must look like 50000-50100"):
        parse_ports(text)


async def test_sockets_stay_in_the_range_until_it_is_used_up(sockets: list[Any]) -> None:
    confine(asyncio.get_running_loop(), PORTS)
    assert sorted([await opened(sockets) for _ in PORTS]) == list(PORTS)
    with pytest.raises(OSError, match="no UDP port from 21310 to 21312 is free") as caught:
        await opened(sockets)
    assert caught.value.errno == errno.EADDRINUSE
    sockets.pop(1).close()
    await asyncio.sleep(0)
    assert await opened(sockets) == 21_311


async def test_a_socket_that_wants_a_certain_port_gets_it(sockets: list[Any]) -> None:
    confine(asyncio.get_running_loop(), PORTS)
    assert await opened(sockets, 21_400) == 21_400
