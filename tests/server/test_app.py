from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientWebSocketResponse, WSCloseCode
from aiohttp.test_utils import TestClient, TestServer

from server.app import build_app, client_web_dir
from server.running import let_finish
from server.settings import Settings
from server.startup import STARTUP
from tests.server.test_sdp import HEAD, VIDEO, WHOLE
from tests.units.odd_engines import HangingSTT
from units import EngineUnavailable, Pipeline, PipelineConfig, build_pipeline
from units.engines import registry
from units.engines.base import EngineSettings

SCRIPTED = EngineSettings("scripted")
CONFIG = PipelineConfig(
    num_pipelines=2, vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED
)

Client = TestClient[Any, Any]


@asynccontextmanager
async def serving(pipeline: Any = None, **settings: Any) -> AsyncIterator[Client]:
    app = build_app(Settings(**settings), pipeline or build_pipeline(CONFIG))
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.fixture
async def ready() -> AsyncIterator[Client]:
    async with serving() as client:
        await client.app[STARTUP].loaded.wait()
        yield client


@asynccontextmanager
async def loading() -> AsyncIterator[tuple[Client, Callable[[], None]]]:
    """A server whose models take as long as the test wants, and what lets them finish."""
    finish, reached = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def load(report: Callable[[str], None]) -> Pipeline:
        report("loading the elephant")
        loop.call_soon_threadsafe(reached.set)
        finish.wait()
        return build_pipeline(CONFIG)

    async with serving(load) as client:
        await reached.wait()
        try:
            yield client, finish.set
        finally:
            finish.set()


async def error_of(response: Any) -> tuple[int, dict[str, Any]]:
    return response.status, (await response.json())["error"]


async def units_are(client: Client, *states: str) -> None:
    """Wait until the units are in these states."""

    async def now() -> list[str]:
        units = (await (await client.get("/v1/pool")).json())["units"]
        return [unit["state"] for unit in units]

    async with asyncio.timeout(5):
        while await now() != [*states]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def say(socket: ClientWebSocketResponse) -> None:
    """Half a second of sound, and silence."""
    loud = np.where(np.arange(12_000) // 30 % 2, 9000, -9000)
    sound = np.concatenate([loud, np.zeros(24_000)]).astype("<i2").tobytes()
    await socket.send_json({"type": "input_audio_buffer.append", "audio": base64.b64encode(sound).decode()})


async def events_until(socket: ClientWebSocketResponse, kind: str) -> list[dict[str, Any]]:
    events = [await socket.receive_json(timeout=5)]
    while events[-1]["type"] != kind:
        events.append(await socket.receive_json(timeout=5))
    return events


async def test_while_the_models_load_it_is_alive_but_not_ready() -> None:
    async with loading() as (client, _):
        assert (await client.get("/healthz")).status == 200
        response = await client.get("/readyz")
        assert response.status == 503
        assert await response.json() == {"status": "loading", "stage": "loading the elephant"}
        assert await (await client.get("/v1/pool")).json() == {"units": []}


async def test_while_the_models_load_calls_are_told_to_come_back() -> None:
    async with loading() as (client, _):
        response = await client.post(
            "/v1/realtime/calls", data="v=0", headers={"Content-Type": "application/sdp"}
        )
        status, error = await error_of(response)
        assert (status, error["code"], error["type"]) == (503, "model_loading", "server_error")
        assert int(response.headers["Retry-After"]) > 0


CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "Sun"}


@asynccontextmanager
async def stopping(client: Client) -> AsyncIterator[ClientWebSocketResponse]:
    """``client``'s server is to stop while a function is called in a conversation, which is given."""
    async with client.ws_connect("/v1/realtime") as socket:
        assert (await socket.receive_json())["type"] == "session.created"
        await socket.send_json({"type": "conversation.item.create", "item": CALL})
        while (await socket.receive_json())["type"] != "conversation.item.done":
            pass
        finishing = asyncio.create_task(let_finish(client.app[STARTUP], 30))
        assert (await socket.receive_json())["error"]["code"] == "server_shutting_down"
        yield socket
        await socket.send_json({"type": "conversation.item.create", "item": RESULT})
        await socket.send_json({"type": "response.create", "response": {"output_modalities": ["text"]}})
        types = [message.json()["type"] async for message in socket]
        assert types[-2:] == ["response.done", "rate_limits.updated"]
        assert socket.close_code == WSCloseCode.GOING_AWAY
    await finishing


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/realtime/calls"),
        ("GET", "/v1/realtime"),
        ("POST", "/v1/realtime/client_secrets"),
        ("POST", "/v1/realtime/sessions"),
    ],
)
async def test_while_it_stops_new_ones_are_told_to_come_back(ready: Client, method: str, path: str) -> None:
    async with stopping(ready):
        headers = {"Content-Type": "application/sdp"} if path.endswith("calls") else {}
        if method == "GET":
            headers = {"Upgrade": "websocket"}
        response = await ready.request(method, path, headers=headers)
        status, error = await error_of(response)
        assert (status, error["code"], error["type"]) == (503, "shutting_down", "server_error")
        assert int(response.headers["Retry-After"]) > 0


async def test_while_it_stops_it_is_alive_but_not_ready_and_a_conversation_ends_with_its_answer(
    ready: Client,
) -> None:
    async with stopping(ready):
        assert (await ready.get("/healthz")).status == 200
        response = await ready.get("/readyz")
        assert (response.status, await response.json()) == (503, {"status": "stopping"})
        units = (await (await ready.get("/v1/pool")).json())["units"]
        assert [unit["state"] for unit in units].count("active") == 1


async def test_it_is_ready_once_the_models_are_loaded() -> None:
    async with loading() as (client, finish):
        finish()
        await client.app[STARTUP].loaded.wait()
        response = await client.get("/readyz")
        assert response.status == 200
        assert await response.json() == {"status": "ready", "units": 2, "free": 2}


async def test_a_failed_load_is_kept_for_whoever_runs_the_server() -> None:
    def load(_: object) -> Pipeline:
        raise EngineUnavailable("Buy a GPU.")

    async with serving(load) as client:
        startup = client.app[STARTUP]
        await startup.loaded.wait()
        assert str(startup.failure) == "Buy a GPU."
        assert (await client.get("/readyz")).status == 503
        assert not startup.busy


async def test_the_units_are_stopped_with_the_server() -> None:
    pipeline = build_pipeline(CONFIG)
    async with serving(pipeline) as client:
        await client.app[STARTUP].loaded.wait()
        threads = [stage.thread for unit in pipeline.pool.units for stage in unit.handlers]
        assert len(threads) >= 12
        assert all(thread.is_alive() for thread in threads)
    assert not any(thread.is_alive() for thread in threads)


async def test_the_pool_shows_every_unit(ready: Client) -> None:
    unit = ready.app[STARTUP].pipeline.pool.claim()
    units = (await (await ready.get("/v1/pool")).json())["units"]
    assert [(each["index"], each["state"]) for each in units] == [(0, "active"), (1, "idle")]
    assert units[0]["session"]
    assert (await (await ready.get("/readyz")).json())["free"] == 1
    unit.session.close()


BAD_OFFERS = [
    "",
    HEAD,
    HEAD + VIDEO,
    WHOLE.replace("opus/48000/2", "G729/8000"),
    WHOLE.replace("a=mid:1", "a=mid:0"),
    WHOLE.replace("a=setup:actpass", "a=setup:holdconn"),
    WHOLE + "a=ssrc:x y\r\n",
    "x" * 1000,
]


async def test_a_hundred_bad_offers_of_all_kinds_leave_all_units_free() -> None:
    async with serving(sessions_per_minute=0) as client:
        await client.app[STARTUP].loaded.wait()
        for number in range(100):
            offer, headers = BAD_OFFERS[number % len(BAD_OFFERS)], {"Content-Type": "application/sdp"}
            refused = await client.post("/v1/realtime/calls", data=offer, headers=headers)
            status, error = await error_of(refused)
            assert (status, error["code"]) == (400, "invalid_offer")
            await units_are(client, "idle", "idle")


async def test_a_recogniser_that_hangs_costs_its_unit_alone_and_nothing_of_it_reaches_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stt = HangingSTT()
    monkeypatch.setitem(registry._registered, ("stt", "hanging"), lambda _: stt)
    config = replace(CONFIG, stt=EngineSettings("hanging"), quarantine_after=0.05)
    async with serving(build_pipeline(config)) as client:
        await client.app[STARTUP].loaded.wait()
        stt.hangs = True
        async with client.ws_connect("/v1/realtime") as hung:
            await say(hung)
            await events_until(hung, "input_audio_buffer.committed")
        await units_are(client, "quarantined", "idle")
        async with client.ws_connect("/v1/realtime") as other:
            await say(other)
            assert (await events_until(other, "response.done"))[-1]["response"]["status"] == "completed"
        await units_are(client, "quarantined", "idle")
        assert (await (await client.get("/readyz")).json())["free"] == 1
        stt.gate.set()
        await units_are(client, "idle", "idle")
        async with client.ws_connect("/v1/realtime") as following:
            await say(following)
            assert "a secret" not in str(await events_until(following, "response.done"))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1/pool", 405, "method_not_allowed"),
    ],
)
async def test_a_refusal_under_v1_is_an_error_body(
    ready: Client, method: str, path: str, status: int, code: str
) -> None:
    got, error = await error_of(await ready.request(method, path))
    assert (got, error["code"], error["type"], error["param"]) == (
        status,
        code,
        "invalid_request_error",
        None,
    )
    assert path in error["message"]


@pytest.mark.parametrize("path", ["/v1/realtime/calls", "/v1/realtime/client_secrets"])
async def test_a_body_that_is_not_what_its_headers_say_is_the_clients_mistake(
    ready: Client, path: str
) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/sdp"}
    got, error = await error_of(await ready.post(path, data=b"no gzip at all", headers=headers))
    assert (got, error["type"]) == (400, "invalid_request_error")


async def test_a_method_that_is_not_allowed_says_which_are(ready: Client) -> None:
    assert (await ready.post("/v1/pool")).headers["Allow"] == "GET,HEAD"


async def test_an_error_of_ours_is_an_error_body_and_a_line_in_the_log(caplog: Any) -> None:
    app = build_app(Settings(), build_pipeline(CONFIG))

    async def broken(_: Any) -> Any:
        raise RuntimeError("secret detail")

    app.router.add_get("/v1/broken", broken)
    async with TestClient(TestServer(app)) as client:
        status, error = await error_of(await client.get("/v1/broken"))
    assert (status, error["code"], error["type"]) == (500, "internal_error", "server_error")
    assert "secret" not in error["message"]
    assert "secret detail" in caplog.text


async def test_a_body_that_is_too_large_is_an_error_body() -> None:
    app = build_app(Settings(), build_pipeline(CONFIG))

    async def read(request: Any) -> Any:
        await request.read()

    app.router.add_post("/v1/read", read)
    async with TestClient(TestServer(app)) as client:
        response = await client.post("/v1/read", data=b"x" * (2 << 20))
        status, error = await error_of(response)
    assert (status, error["code"]) == (413, "request_too_large")


async def test_the_page_is_at_the_root_and_revalidated(ready: Client) -> None:
    response = await ready.get("/")
    assert response.status == 200
    assert response.content_type == "text/html"
    assert response.headers["Cache-Control"] == "no-cache"
    assert await response.read() == (client_web_dir() / "index.html").read_bytes()
    again = await ready.get("/", headers={"If-None-Match": response.headers["ETag"]})
    assert again.status == 304


async def test_the_page_may_load_nothing_from_elsewhere(ready: Client) -> None:
    policy = (await ready.get("/")).headers["Content-Security-Policy"]
    sources = dict(directive.split(" ", 1) for directive in policy.split("; "))
    assert sources["default-src"] == "'none'"
    assert set(sources.values()) == {"'none'", "'self'", "'script'"}


@pytest.mark.parametrize("path", ["/", "/main.js", "/nothing.js", "/healthz", "/v1/pool", "/v1/nothing"])
async def test_every_answer_has_the_headers_that_keep_browsers_careful(ready: Client, path: str) -> None:
    headers = (await ready.get(path)).headers
    assert headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "microphone=(self)" in headers["Permissions-Policy"]


async def test_scripts_are_scripts(ready: Client) -> None:
    assert (await ready.get("/main.js")).content_type == "text/javascript"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing.js",
        "/package.json",
        "/tests/unit/wire.test.js",
        "/%2e%2e/server/app.py",
        "/core",
        "/a%00.js",
        f"/{'a' * 300}.js",
    ],
)
async def test_what_is_not_part_of_the_page_is_not_found(ready: Client, path: str) -> None:
    assert (await ready.get(path)).status == 404


async def test_pages_learn_the_version_and_the_ice_servers() -> None:
    servers = ("stun:a:1", "turn:u:p@b:2?transport=tcp")
    async with serving(ice_server=servers) as client:
        config = await (await client.get("/client-config.json")).json()
    assert config["version"]
    assert config["ice_servers"] == [
        {"urls": ["stun:a:1"]},
        {"urls": ["turn:b:2?transport=tcp"], "username": "u", "credential": "p"},
    ]


@pytest.mark.parametrize(
    ("kept", "recording", "transcripts"),
    [
        ((), False, False),
        (("record_calls",), True, False),
        (("transcripts",), False, True),
        (("webhook",), False, True),
    ],
)
async def test_pages_learn_what_is_kept_of_calls(
    kept: tuple[str, ...], recording: bool, transcripts: bool, tmp_path: Path
) -> None:
    values = {
        "record_calls": tmp_path,
        "transcripts": tmp_path,
        "webhook": "http://localhost:9/",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    settings = {name: values[name] for name in kept}
    async with serving(webhook_secret=secret, **settings) as client:
        config = await (await client.get("/client-config.json")).json()
        notice = await (await client.get("/notice.json")).json()
    assert notice == {"recording": recording, "transcripts": transcripts}
    assert {**config, **notice} == config


@pytest.mark.parametrize(("relay_for", "told"), [("both", 2), ("callers", 2), ("server", 0)])
async def test_pages_get_a_login_of_their_own_for_each_call(relay_for: str, told: int) -> None:
    urls = ("turn:127.0.0.1:9?transport=tcp", "turns:127.0.0.1:9")
    async with serving(turn_url=urls, turn_secret="north-south-east-west", turn_for=relay_for) as client:
        first, second = [
            (await (await client.get("/client-config.json")).json())["ice_servers"] for _ in range(2)
        ]
    assert [server["urls"] for server in first] == [[url] for url in urls][:told]
    for one, other in zip(first, second, strict=True):
        expires, name = one["username"].split(":")
        assert 7190 < int(expires) - time.time() <= 7200
        assert other["username"].split(":")[1] != name
        assert one["credential"] != other["credential"]
