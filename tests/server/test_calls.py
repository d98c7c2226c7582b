"""The HTTP door: what is refused, and that no refusal costs a unit."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from aiohttp import ClientSession, FormData, web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request

from server import calls as door
from server import doors, peer
from server.calls import MAX_BODY, Calls, setup_calls
from server.client_secrets import ClientSecrets
from server.peer import Limits
from tests.server.fakes import FakePool, FakeSettings
from tests.server.test_sdp import AUDIO, EVENTS, GROUP, HEAD, WHOLE

PATH = "/v1/realtime/calls"
SDP = {"Content-Type": "application/sdp"}


@pytest.fixture
def pool() -> FakePool:
    return FakePool()


@pytest.fixture
def app() -> web.Application:
    return web.Application()


@pytest.fixture
def calls(app: web.Application, pool: FakePool) -> Calls:
    return setup_calls(app, pool, FakeSettings(), ClientSecrets(pool))


@pytest.fixture
async def http(app: web.Application, calls: Calls) -> AsyncIterator[ClientSession]:
    async with TestClient(TestServer(app)) as client:
        yield client


async def error(response: Any) -> dict[str, Any]:
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code", "param"}
    return body["error"]


async def test_an_offer_gets_an_answer_and_a_place(http: ClientSession, pool: FakePool, calls: Calls) -> None:
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 201
        assert response.content_type == "application/sdp"
        assert (await response.text()).startswith("v=0\r\n")
        place = response.headers["Location"]
        assert response.headers["Access-Control-Expose-Headers"] == "Location"
    assert place.startswith(PATH + "/rtc_")
    assert len(place.rsplit("_", 1)[1]) == 32
    assert (pool.free, len(calls)) == (0, 1)
    async with http.delete(place) as response:
        assert response.status == 204
    assert (pool.free, len(calls)) == (1, 0)


@pytest.mark.parametrize("path", [PATH, "/v1/realtime", PATH + "?model=gpt-realtime"])
@pytest.mark.parametrize("kind", ["application/sdp", "application/sdp; charset=utf-8"])
async def test_paths_and_types_that_clients_use_are_taken(http: ClientSession, path: str, kind: str) -> None:
    async with http.post(path, data=WHOLE, headers={"Content-Type": kind}) as response:
        assert response.status == 201


@pytest.mark.parametrize("typed", [False, True])
async def test_a_form_may_bring_the_session(http: ClientSession, pool: FakePool, typed: bool) -> None:
    form = FormData(default_to_multipart=True)
    form.add_field("sdp", WHOLE, content_type="application/sdp" if typed else None)
    form.add_field("session", '{"type": "realtime"}', content_type="application/json" if typed else None)
    async with http.post(PATH, data=form) as response:
        assert response.status == 201
    assert pool.units[0].last.settings == [{"type": "realtime"}]


async def test_a_form_may_bring_files(http: ClientSession) -> None:
    form = FormData(default_to_multipart=True)
    form.add_field("sdp", WHOLE.encode(), filename="blob")
    async with http.post(PATH, data=form) as response:
        assert response.status == 201


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        ("", "application/sdp", 400, "invalid_offer"),
        ("nonsense", "application/sdp", 400, "invalid_offer"),
        (b"\xff\xfe", "application/sdp", 400, "invalid_offer"),
        (HEAD + AUDIO.replace("opus/48000/2", "G729/8000"), "application/sdp", 400, "invalid_offer"),
        (WHOLE, "text/plain", 415, "unsupported_content_type"),
        ("{}", "application/json", 415, "unsupported_content_type"),
        (WHOLE + "a=x\r\n" * MAX_BODY, "application/sdp", 413, "request_too_large"),
        ("nonsense", "multipart/form-data; boundary=x", 400, None),
        ("nonsense", "multipart/form-data", 400, "invalid_form"),
    ],
)
async def test_bad_requests_are_refused_and_cost_no_unit(
    http: ClientSession, pool: FakePool, body: str | bytes, kind: str, status: int, code: str | None
) -> None:
    async with http.post(PATH, data=body, headers={"Content-Type": kind}) as response:
        assert response.status == status
        refusal = await error(response)
    assert refusal["type"] == "invalid_request_error"
    assert code is None or refusal["code"] == code
    assert pool.free == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session": "{}"}, "missing_required_parameter"),
        ({"sdp": WHOLE, "session": "{"}, "invalid_json"),
        ({"sdp": WHOLE, "session": "[" * 100_000}, "invalid_json"),
        ({"sdp": WHOLE, "session": "[]"}, "invalid_type"),
        ({"sdp": WHOLE, "session": "x" * MAX_BODY}, "request_too_large"),
    ],
)
async def test_bad_forms_are_refused_and_cost_no_unit(
    http: ClientSession, pool: FakePool, fields: dict[str, str], code: str
) -> None:
    form = FormData(default_to_multipart=True)
    for name, value in fields.items():
        form.add_field(name, value)
    async with http.post(PATH, data=form) as response:
        assert (await error(response))["code"] == code
    assert pool.free == 1


async def test_a_body_without_a_stated_length_is_limited_too(http: ClientSession, pool: FakePool) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 65_536

    async with http.post(PATH, data=endless(), headers=SDP) as response:
        assert response.status == 413
    assert pool.free == 1


@pytest.mark.parametrize(("candidates", "status"), [(4_000, 201), (10_000, 413)])
async def test_an_offer_with_thousands_of_candidates_is_answered_at_once_or_too_large(
    http: ClientSession, candidates: int, status: int
) -> None:
    lines = (f"a=candidate:1 1 udp 1 127.1.{n // 256}.{n % 256} 9 typ host\r\n" for n in range(candidates))
    offer = HEAD + GROUP + AUDIO + "".join(lines) + EVENTS
    async with asyncio.timeout(2), http.post(PATH, data=offer, headers=SDP) as response:
        assert response.status == status


async def test_a_hundred_bad_offers_cost_no_unit(http: ClientSession, pool: FakePool) -> None:
    for _ in range(100):
        async with http.post(PATH, data=HEAD, headers=SDP) as response:
            assert response.status == 400
    assert pool.free == 1


async def test_a_full_pool_asks_to_come_back(http: ClientSession) -> None:
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 201
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        assert (await error(response))["type"] == "server_error"


async def test_an_answer_without_any_address_is_refused(
    http: ClientSession, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: [])
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 503
        assert (await error(response))["code"] == "no_media_port"
    assert pool.free == 1


async def test_calls_use_the_ports_of_the_range_and_are_refused_when_it_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])
    monkeypatch.setattr(FakeSettings, "udp_range", range(21_320, 21_322))
    app, pool = web.Application(), FakePool(3)
    calls = setup_calls(app, pool, FakeSettings(), ClientSecrets(pool))
    async with TestClient(TestServer(app)) as http:
        ports = set()
        for _ in range(2):
            async with http.post(PATH, data=WHOLE, headers=SDP) as response:
                place = response.headers["Location"]
                ports |= set(re.findall(r"127\.0\.0\.1 (\d+) typ host", await response.text()))
        assert ports == {"21320", "21321"}
        async with http.post(PATH, data=WHOLE, headers=SDP) as response:
            assert response.status == 503
            assert int(response.headers["Retry-After"]) > 0
            refused = await error(response)
        assert refused["code"] == "no_media_port"
        assert refused["message"] == "All UDP ports from 21320 to 21321 are in use. Try again in a moment."
        assert pool.free == 1
        await http.delete(place)
        await asyncio.gather(*(peer.wait_closed() for peer in list(calls._ending)))
        async with http.post(PATH, data=WHOLE, headers=SDP) as response:
            assert response.status == 201


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("9.9.9.9", "9.9.9.9"),
        ("10.0.0.1, 9.9.9.9", "9.9.9.9"),
        ("::ffff:9.9.9.9", "9.9.9.9"),
        ("2606:4700::1", "2606:4700::1"),
        ("", None),
        ("10.0.0.1", None),
        ("fe80::1%eth0", None),
        ("unknown", None),
    ],
)
def test_the_address_of_a_caller_is_the_public_one_that_the_proxy_names(
    forwarded: str, address: str | None
) -> None:
    request = make_mocked_request("POST", PATH, headers={"X-Forwarded-For": forwarded} if forwarded else {})
    assert door.caller_address(request) == address


async def test_a_set_up_that_takes_too_long_frees_the_unit(
    http: ClientSession, pool: FakePool, calls: Calls
) -> None:
    calls._limits = Limits(answer=0)
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert (await error(response))["code"] == "setup_timeout"
    assert pool.free == 1


async def test_a_client_that_goes_away_before_the_answer_frees_the_unit(calls: Calls, pool: FakePool) -> None:
    class Gone(dict[str, Any]):
        content_length = len(WHOLE)
        content_type = "application/sdp"
        headers: ClassVar[dict[str, str]] = {}
        transport = None
        remote = None

        def __init__(self) -> None:
            self.content = self
            self.chunks = [WHOLE.encode(), b""]

        async def readany(self) -> bytes:
            return self.chunks.pop(0)

    await calls.create(Gone())
    assert pool.free == 1
    await calls.close_all()


async def test_a_client_that_leaves_while_it_sends_is_no_error(
    app: web.Application,
    calls: Calls,
    pool: FakePool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading, left = asyncio.Event(), asyncio.Event()
    read = door._read_in_time

    async def watched(request: web.Request) -> tuple[str, str | None]:
        reading.set()
        try:
            return await read(request)
        finally:
            left.set()

    monkeypatch.setattr(door, "_read_in_time", watched)
    caplog.set_level(logging.INFO)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _, writer = await asyncio.open_connection(*runner.addresses[0])
    length = "Content-Type: application/sdp\r\nContent-Length: 1000"
    writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\nv=0".encode())
    async with asyncio.timeout(5):
        await reading.wait()
        writer.transport.abort()
        await left.wait()
    await runner.cleanup()
    assert "a client left before its offer had arrived" in caplog.text
    assert not [x for x in caplog.records if x.levelno > logging.INFO]
    assert pool.free == 1


async def test_a_body_that_does_not_arrive_in_time_is_refused(
    http: ClientSession, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "BODY_TIMEOUT", 0.05)

    async def never() -> AsyncIterator[bytes]:
        yield b"v=0"
        await asyncio.Event().wait()

    async with http.post(PATH, data=never(), headers=SDP) as response:
        assert response.status == 408
        assert (await error(response))["code"] == "request_timeout"
    assert pool.free == 1


@pytest.mark.parametrize("method", ["setRemoteDescription", "setLocalDescription"])
async def test_an_offer_that_negotiation_stumbles_over_is_refused(
    http: ClientSession, pool: FakePool, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def stumble(*_: object) -> None:
        raise AttributeError("no such section")

    monkeypatch.setattr(peer.RTCPeerConnection, method, stumble)
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 400
        assert (await error(response))["code"] == "invalid_offer"
    assert pool.free == 1


async def test_a_connection_that_cannot_be_closed_is_logged_and_let_go(
    http: ClientSession, calls: Calls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 201
    close = peer.RTCPeerConnection.close

    async def fails(self: peer.RTCPeerConnection) -> None:
        await close(self)
        raise AttributeError("half made")

    monkeypatch.setattr(peer.RTCPeerConnection, "close", fails)
    await calls.close_all()
    assert "did not close: AttributeError" in caplog.text


async def test_a_session_is_told_why_its_call_ended(http: ClientSession, pool: FakePool) -> None:
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        place = response.headers["Location"]
    async with http.delete(place):
        pass
    assert pool.units[0].last.reason == "hung up over HTTP"


async def test_our_own_mistake_frees_the_unit(
    http: ClientSession, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_text: str) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(peer, "read_offer", broken)
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 500
    assert pool.free == 1


async def test_a_session_that_cannot_be_opened_ends_the_call(
    http: ClientSession, pool: FakePool, calls: Calls
) -> None:
    pool.units[0].stillborn = True
    async with http.post(PATH, data=WHOLE, headers=SDP) as response:
        assert response.status == 503
        assert (await error(response))["code"] == "call_ended"
    assert (pool.free, len(calls)) == (1, 0)


@pytest.mark.parametrize(("method", "tail"), [("POST", "/rtc_no/hangup"), ("DELETE", "/rtc_no")])
async def test_an_unknown_call_cannot_be_hung_up(http: ClientSession, method: str, tail: str) -> None:
    async with http.request(method, PATH + tail) as response:
        assert response.status == 404
        assert (await error(response))["code"] == "call_id_not_found"


@pytest.mark.parametrize("path", [PATH, PATH + "/rtc_1", PATH + "/rtc_1/hangup", "/v1/realtime"])
async def test_browsers_may_ask_first(http: ClientSession, path: str) -> None:
    async with http.options(path) as response:
        assert response.status == 204
        assert "DELETE" in response.headers["Access-Control-Allow-Methods"]
        assert "Authorization" in response.headers["Access-Control-Allow-Headers"]
