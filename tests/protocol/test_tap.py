"""Whoever sends an event that no client would understand is noticed, however it leaves."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer

from server.calls import setup_calls
from server.client_secrets import ClientSecrets
from tests.e2e.serving import SCRIPTED, serving
from tests.protocol.tap import problems_of
from tests.server.fakes import Client, FakePool, FakeSettings, answer_to
from tests.units.caller import Caller, WatchedUnit
from units.realtime.service import RealtimeService

pytestmark = pytest.mark.breaks_the_protocol

FAULTY_SERVER = """
import runpy
from units.realtime.config import SessionConfig
whole = SessionConfig.wire
SessionConfig.wire = lambda self: whole(self) | {"colour": "red"}
runpy.run_module("tests.protocol.tapped", run_name="__main__", alter_sys=True)
"""


async def test_it_may_be_the_text_of_a_websocket() -> None:
    async def door(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str('{"type":"nope"}')
        await socket.close()
        return socket

    app = web.Application()
    app.router.add_get("/v1/realtime", door)
    async with TestClient(TestServer(app)) as http, http.ws_connect("/v1/realtime") as socket:
        assert await socket.receive_json() == {"type": "nope"}


async def test_it_may_be_the_text_of_a_data_channel() -> None:
    pool, app, client = FakePool(), web.Application(), Client().add_channel()
    setup_calls(app, pool, FakeSettings(), ClientSecrets(pool))
    async with TestClient(TestServer(app)) as http:
        await client.call(http)
        pool.units[0].last.transport.send(answer_to("x") | {"colour": "red"})
        await client.next_event()
        assert (await client.next_event())["colour"] == "red"
        await client.close()


async def test_it_may_be_an_event_for_a_transport_in_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Newcomer:
        def send(self, event: dict[str, Any]) -> None: ...

        def close(self, reason: str) -> None: ...

    unit, newcomer = WatchedUnit(), Newcomer()
    unit.start()
    caller = Caller(unit)
    monkeypatch.setattr(RealtimeService, "greeting", lambda _: {"type": "session.created", "session": 1})
    caller.session.join(newcomer)
    assert caller.problems == []
    assert "session.created.event_id: missing" in problems_of(newcomer)
    await caller.hang_up()
    assert await unit.finished() == []


@pytest.mark.e2e
async def test_it_may_leave_a_server_in_a_process_of_its_own() -> None:
    with serving(*SCRIPTED, program=("-c", FAULTY_SERVER)) as served:
        async with ClientSession() as http, http.ws_connect(f"{served.url}/v1/realtime") as socket:
            assert (await socket.receive_json())["session"]["colour"] == "red"
