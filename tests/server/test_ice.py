from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aioice import stun

from server.ice import IceServer, IceServers, parse_ice_server


class StunServer(asyncio.DatagramProtocol):
    """Answers binding requests, and counts them."""

    def __init__(self) -> None:
        self.asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += 1
        request = stun.parse_message(data)
        answer = stun.Message(
            message_method=stun.Method.BINDING,
            message_class=stun.Class.RESPONSE,
            transaction_id=request.transaction_id,
        )
        answer.attributes["XOR-MAPPED-ADDRESS"] = addr
        self.transport.sendto(bytes(answer), addr)


@pytest.fixture
async def stun_server() -> AsyncIterator[StunServer]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(StunServer, local_addr=("127.0.0.1", 0))
    protocol.port = transport.get_extra_info("sockname")[1]
    yield protocol
    transport.close()


@pytest.fixture
async def silent_port() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
    yield transport.get_extra_info("sockname")[1]
    transport.close()


def urls(servers: IceServers) -> list[str]:
    return [x.urls for x in servers.configuration().iceServers]


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("stun:stun.example.org", IceServer("stun:stun.example.org")),
        ("turn:turn.example.org:3478?transport=tcp", IceServer("turn:turn.example.org:3478?transport=tcp")),
        (
            "turn:me:s%40cret@turn.example.org?transport=udp",
            IceServer("turn:turn.example.org?transport=udp", "me", "s@cret"),
        ),
        ("turns:me:it@turn.example.org", IceServer("turns:turn.example.org", "me", "it")),
    ],
)
def test_servers_are_read_from_text(text: str, server: IceServer) -> None:
    assert parse_ice_server(text) == server


@pytest.mark.parametrize("text", ["", "http://example.org", "stun:", "turn:a:b@"])
def test_other_texts_are_no_servers(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        parse_ice_server(text)


def test_a_credential_is_not_shown() -> None:
    assert "secret" not in repr(parse_ice_server("turn:me:secret@turn.example.org"))


async def test_without_servers_none_is_asked() -> None:
    servers = IceServers()
    assert servers.configuration().iceServers == []
    assert servers._probing is None


async def test_only_servers_that_answer_are_used(
    stun_server: StunServer, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.ice.PROBE_TIMEOUT", 0.2)
    good = f"stun:127.0.0.1:{stun_server.port}"
    servers = IceServers([good, f"stun:127.0.0.1:{silent_port}", f"turn:a:b@127.0.0.1:{silent_port}"])
    assert urls(servers) == []
    await servers.probed()
    assert urls(servers) == [good]


async def test_servers_are_not_asked_again_for_every_call(stun_server: StunServer) -> None:
    servers = IceServers([f"stun:127.0.0.1:{stun_server.port}"])
    for _ in range(5):
        servers.configuration()
        await servers.probed()
    assert stun_server.asked == 1


async def test_a_probe_can_be_called_off(silent_port: int) -> None:
    servers = IceServers([f"stun:127.0.0.1:{silent_port}"])
    servers.probe()
    await servers.close()
    assert servers._probing is None


def logins(name: str) -> list[IceServer]:
    return [IceServer("turn:127.0.0.1:9?transport=tcp", f"1:{name}", "p")]


async def test_each_call_gets_a_login_of_its_own() -> None:
    servers = IceServers((), logins)
    servers._answering = {"turn:127.0.0.1:9?transport=tcp": 0.01}
    given = [servers.configuration(name).iceServers[0].username for name in ("rtc_1", "rtc_2")]
    assert given == ["1:rtc_1", "1:rtc_2"]
    await servers.close()


@pytest.mark.parametrize(
    ("took", "patience"), [({}, 0.2), ({"a": 0.01}, 0.2), ({"a": 0.01, "b": 0.3}, 0.6), ({"a": 2}, 1)]
)
def test_a_call_waits_twice_as_long_as_the_servers_took(took: dict[str, float], patience: float) -> None:
    servers = IceServers()
    servers._answering = took
    assert servers.patience == patience


async def test_a_relay_that_was_missed_is_not_waited_for_again(stun_server: StunServer) -> None:
    stun_url = f"stun:127.0.0.1:{stun_server.port}"
    servers = IceServers([stun_url], logins)
    servers._answering = {stun_url: 0.01, "turn:127.0.0.1:9?transport=tcp": 0.01}
    assert servers.relays
    servers.missed()
    assert not servers.relays
    assert urls(servers) == [stun_url]
    await servers.probed()
    assert stun_server.asked == 1
    assert urls(servers) == [stun_url]
