"""A TURN server that does not answer, or no longer: what it costs a call."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from server.calls import Calls, setup_calls
from server.client_secrets import ClientSecrets
from server.turn import Coturn, Turn, turnserver_conf
from tests.server.fakes import Client, FakePool, FakeSettings, ToneTrack

pytestmark = pytest.mark.e2e


class Timed:
    """A server of calls, and how long it takes to answer one."""

    def __init__(self, calls: Calls, http: TestClient) -> None:
        self.calls = calls
        self.http = http

    async def call(self) -> tuple[float, str]:
        """Seconds from the offer to a connection, and the answer."""
        client = Client()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.add_audio(ToneTrack()).add_channel().call(self.http)
        took = loop.time() - began
        await self.http.delete(client.location)
        await client.close()
        return took, client.answer


@asynccontextmanager
async def serving(turn: Turn | None = None) -> AsyncIterator[Timed]:
    settings = FakeSettings()
    settings.turn = turn
    app, pool = web.Application(), FakePool()
    calls = setup_calls(app, pool, settings, ClientSecrets(pool))
    async with TestClient(TestServer(app)) as http:
        yield Timed(calls, http)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def quickest(server: Timed) -> float:
    return min([(await server.call())[0] for _ in range(3)])


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_one_that_never_answers_costs_a_call_nothing_to_speak_of(transport: str) -> None:
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    with socket.socket(type=kind) as silent:
        silent.bind(("127.0.0.1", 0))
        if transport == "tcp":
            silent.listen()
        url = f"turn:127.0.0.1:{silent.getsockname()[1]}?transport={transport}"
        async with serving() as without, serving(Turn((url,), "north-south-east-west", 7200)) as with_it:
            assert await quickest(with_it) < await quickest(without) + 0.3


async def test_one_that_falls_silent_is_waited_for_once_and_not_long(port: int, tmp_path: Path) -> None:
    turn = Turn((f"turn:127.0.0.1:{port}",), "north-south-east-west", 7200)
    path = tmp_path / "turnserver.conf"
    coturn = Coturn(turn, 4, ("127.0.0.1",), ("127.0.0.1",), bind=True)
    path.write_text(turnserver_conf(coturn, secret=True) + f"pidfile={tmp_path}/pid\n")
    relay = await asyncio.create_subprocess_exec(
        *("stdbuf", "--output=L", "turnserver", "-c", str(path)), stdout=asyncio.subprocess.PIPE
    )
    assert relay.stdout is not None
    try:
        await relay.stdout.readuntil(b"Total General servers")
        async with serving() as without, serving(turn) as server:
            await server.calls._ice.probed()
            assert " typ relay " in (await server.call())[1]
            usual = await quickest(without)
            relay.send_signal(signal.SIGSTOP)
            patience = server.calls._ice.patience
            took, answer = await server.call()
            assert " typ relay " not in answer
            assert took < usual + patience + 0.1
            assert await quickest(server) < usual + 0.1
            relay.send_signal(signal.SIGCONT)
            await server.calls._ice.probed()
            assert " typ relay " in (await server.call())[1]
    finally:
        relay.kill()
        await relay.wait()
