"""The WebSocket door on a real unit with scripted engines."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError, web
from aiohttp.test_utils import TestClient, TestServer

from server.calls import setup_calls
from server.client_secrets import setup_client_secrets
from server.metrics import ENDINGS
from server.socket import MOST_CONTROLS, UNHEARD, Sockets, SocketTransport, setup_sockets
from server.watch import Begun, Watcher
from tests.server.fakes import Client, FakeSettings
from units import EngineSettings, Observer, Pipeline, PipelineConfig, PipelineUnit, build_pipeline
from units.engines.scripted import HEARD
from units.messages import Int16
from units.realtime.service import ServiceConfig
from units.realtime.sound import decoded

Json = dict[str, Any]
URL = "/v1/realtime?model=gpt-realtime"
SCRIPTED = EngineSettings("scripted")
RATE = 24_000


@pytest.fixture
def pipeline() -> Pipeline:
    return build_pipeline(
        PipelineConfig(num_pipelines=2, vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED)
    )


class Doors:
    """A pipeline as the doors know it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def claim(self) -> PipelineUnit:
        return self._pipeline.pool.claim()

    def service_config(self) -> ServiceConfig:
        return self._pipeline.service_config()


class Served:
    def __init__(self, http: TestClient[Any, Any], sockets: Sockets, pipeline: Pipeline) -> None:
        self.http = http
        self.sockets = sockets
        self.pool = pipeline.pool
        self.deaf: list[asyncio.Transport] = []

    async def dial(self, url: str = URL, **options: Any) -> Caller:
        return Caller(await self.http.ws_connect(url, **options))

    async def dial_deaf(self, url: str = URL) -> Caller:
        """A client that reads no more once it has heard that its session has begun."""
        caller = await self.dial(url)
        await caller.event("session.created")
        caller.transport.pause_reading()
        self.deaf.append(caller.transport)
        return caller

    async def no_connection(self) -> None:
        """Wait until nobody has a connection, nor a handler that waits for one."""
        runner = self.http.server.runner
        async with asyncio.timeout(5):
            while runner.server.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def free(self) -> None:
        """Wait until nobody has a unit."""
        async with asyncio.timeout(5):
            while self.pool.free < len(self.pool.units):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
async def served(pipeline: Pipeline) -> AsyncIterator[Served]:
    async with serving(pipeline) as served:
        yield served


@asynccontextmanager
async def serving(pipeline: Pipeline, *watchers: Watcher) -> AsyncIterator[Served]:
    app, doors = web.Application(), Doors(pipeline)
    secrets = setup_client_secrets(app, doors)
    calls = setup_calls(app, doors, FakeSettings(), secrets, watchers)
    strict = pipeline.config.strict_protocol
    sockets = setup_sockets(app, doors, secrets, calls, strict=strict, watchers=watchers)
    pipeline.start()
    async with TestClient(TestServer(app)) as http:
        served = Served(http, sockets, pipeline)
        yield served
        for transport in served.deaf:
            transport.abort()
    assert await pipeline.stop() == []


class Caller:
    """A client, and all events that it got."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket
        self.events: list[Json] = []

    @property
    def transport(self) -> asyncio.Transport:
        transport: asyncio.Transport = self.socket._response.connection.transport
        return transport

    async def ask_for(self, megabytes: int) -> None:
        """Put a long text into the conversation, and have it sent so often."""
        await self.send(text("A" * 1_000_000, id="long"))
        for _ in range(megabytes):
            await self.send({"type": "conversation.item.retrieve", "item_id": "long"})

    async def __aenter__(self) -> Caller:
        if not self.events:
            await self.event("session.created")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.socket.close()

    async def send(self, *events: Json) -> None:
        for event in events:
            await self.socket.send_json(event)

    async def event(self, kind: str) -> Json:
        """The next event of this type; all before it are noted."""
        async with asyncio.timeout(10):
            while True:
                message = await self.socket.receive()
                assert message.type is WSMsgType.TEXT, (message, self.events[-3:])
                event: Json = json.loads(message.data)
                self.events.append(event)
                if event["type"] == kind:
                    return event

    async def say(self, ms: int, *, quiet_ms: int = 0) -> None:
        """Speech, then silence, in packets of 20 ms."""
        loud = np.where(np.arange(ms * 24) // 30 % 2, 9000, -9000).astype("<i2")
        sound = np.concatenate([loud, np.zeros(quiet_ms * 24, "<i2")])
        for start in range(0, len(sound), 480):
            await self.send(append(sound[start : start + 480]))

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    def sound(self, item_id: str, kind: str = "audio/pcm") -> Int16:
        deltas = [e for e in self.events if e["type"] == "response.output_audio.delta"]
        return np.concatenate([decoded(e["delta"], kind) for e in deltas if e["item_id"] == item_id])


def append(samples: Any) -> Json:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(samples.tobytes()).decode()}


def update(**session: Any) -> Json:
    return {"type": "session.update", "session": {"type": "realtime", **session}}


def text(content: str, **item: Any) -> Json:
    item |= {"type": "message", "role": "user", "content": [{"type": "input_text", "text": content}]}
    return {"type": "conversation.item.create", "item": item}


def truncate(item_id: str, ms: int) -> Json:
    where = {"item_id": item_id, "content_index": 0, "audio_end_ms": ms}
    return {"type": "conversation.item.truncate", **where}


class Endings(Observer):
    """Notes why sessions end."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def watch(self, _begun: Begun) -> Observer:
        return self

    def closed(self, reason: str) -> None:
        self.reasons.append(reason)


def transports(served: Served) -> list[SocketTransport]:
    """Of the sessions that are open."""
    found = [session._transport for session in served.sockets._open]  # type: ignore[attr-defined]
    return [transport for transport in found if isinstance(transport, SocketTransport)]


CREATE = {"type": "response.create"}


async def test_a_spoken_turn_is_answered_in_events(served: Served) -> None:
    async with await served.dial() as caller:
        await caller.say(600, quiet_ms=900)
        done = (await caller.event("response.done"))["response"]
        (item,) = done["output"]
        transcript = item["content"][0]["transcript"]
        sound = caller.sound(item["id"])
    assert len(sound) == pytest.approx(0.06 * len(transcript) * RATE, rel=0.05)
    assert np.abs(sound.astype(int)).max() > 1000
    kinds = caller.kinds()
    assert kinds.index("input_audio_buffer.speech_started") < kinds.index("input_audio_buffer.committed")
    assert not [kind for kind in kinds if kind.startswith("output_audio_buffer.")]
    await served.free()


async def test_speaking_stops_the_answer_and_the_client_says_what_was_heard(served: Served) -> None:
    async with await served.dial() as caller:
        await caller.send(text("[[long]]"), CREATE)
        item = (await caller.event("response.output_item.added"))["item"]
        await caller.event("response.output_audio.delta")
        await caller.say(300)
        await caller.event("input_audio_buffer.speech_started")
        await caller.send(truncate(item["id"], 600))
        await caller.event("conversation.item.truncated")
        await caller.send({"type": "conversation.item.retrieve", "item_id": item["id"]})
        kept = (await caller.event("conversation.item.retrieved"))["item"]["content"][0]["transcript"]
    assert 0 < len(kept) <= 10
    assert not [kind for kind in caller.kinds() if kind.startswith("output_audio_buffer.")]


async def test_more_than_was_made_cannot_have_been_heard(served: Served) -> None:
    async with await served.dial() as caller:
        await caller.send(text("[[echo:Yes.]]"), CREATE)
        item = (await caller.event("response.done"))["response"]["output"][0]
        await caller.send(truncate(item["id"], 9000))
        error = (await caller.event("error"))["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "audio_end_ms")
    assert error["message"].startswith("Audio content of 240ms is already shorter than 9000ms")


@pytest.mark.parametrize("kind", ["audio/pcmu", "audio/pcma"])
async def test_telephone_sound_goes_both_ways(served: Served, kind: str) -> None:
    async with await served.dial() as caller:
        audio = {"input": {"format": {"type": kind}}, "output": {"format": {"type": kind}}}
        await caller.send(update(audio=audio))
        await caller.event("session.updated")
        loud, silent = (b"\x80\x00", b"\xff") if kind == "audio/pcmu" else (b"\xaa\x2a", b"\xd5")
        for part in (loud * 2400, silent * 7200):
            await caller.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(part).decode()})
        item = (await caller.event("response.done"))["response"]["output"][0]
        sound = caller.sound(item["id"], kind)
    assert len(sound) == pytest.approx(0.06 * len(item["content"][0]["transcript"]) * 8000, rel=0.05)
    assert 1000 < np.abs(sound.astype(int)).max() < 32_000


async def test_the_key_may_come_in_a_subprotocol_and_is_never_the_chosen_one(served: Served) -> None:
    offered = ("realtime", "openai-insecure-api-key.sk-anything", "openai-agents-sdk.0.20.0")
    async with await served.dial(protocols=offered) as caller:
        assert caller.socket.protocol == "realtime"


async def test_bad_messages_are_errors_and_the_session_lives(served: Served) -> None:
    async with await served.dial() as caller:
        await caller.socket.send_bytes(b"\x00\x01")
        assert (await caller.event("error"))["error"]["code"] == "invalid_event"
        await caller.socket.send_str("[" * 10_000)
        assert (await caller.event("error"))["error"]["code"] == "invalid_json"
        await caller.send({"type": "nope", "pad": "x" * 300_000})
        assert (await caller.event("error"))["error"]["param"] == "type"
        await caller.send(text("[[echo:Still here.]]"), CREATE)
        assert (await caller.event("response.done"))["response"]["status"] == "completed"


async def test_a_flood_of_sound_waits_outside_and_is_all_heard(served: Served) -> None:
    minutes = np.zeros(240 * RATE, "<i2")
    async with await served.dial() as caller:
        (session,) = served.sockets._open
        most, parts = 0, 20
        for part in np.split(minutes, parts):
            await caller.send(append(part))
            most = max(most, session.unheard)
        loud = np.where(np.arange(RATE) // 30 % 2, 9000, -9000).astype("<i2")
        await caller.send(append(np.concatenate([loud, np.zeros(RATE, "<i2")])))
        started = await caller.event("input_audio_buffer.speech_started")
        assert started["audio_start_ms"] == pytest.approx(240_000 - 300, abs=100)
        assert most <= UNHEARD + 240 // parts
        assert "error" not in caller.kinds()


async def test_a_full_server_refuses_with_a_body_and_leaves_the_others_alone(served: Served) -> None:
    async with await served.dial() as first, await served.dial() as second:
        with pytest.raises(WSServerHandshakeError) as refused:
            await served.dial()
        assert refused.value.status == 503
        for caller in (first, second):
            await caller.send(text("[[echo:Here.]]"), CREATE)
            await caller.event("response.done")
    await served.free()


@pytest.mark.parametrize("politely", [True, False])
async def test_a_client_that_leaves_gives_its_unit_back(served: Served, politely: bool) -> None:
    caller = await served.dial()
    await caller.send(text("[[long]]"), CREATE)
    await caller.event("response.output_audio.delta")
    if politely:
        await caller.socket.close()
    else:
        caller.transport.abort()
    await served.free()


async def test_a_client_that_does_not_read_is_cut_off_and_nothing_waits_for_it(served: Served) -> None:
    caller = await served.dial_deaf()
    (transport,) = transports(served)
    await caller.ask_for(45)
    await served.free()
    assert transport.reason == "the client does not read its events"
    assert transport._waiting.qsize() <= 1
    await served.no_connection()


async def test_a_control_that_does_not_read_is_cut_off_and_the_call_goes_on(served: Served) -> None:
    phone = Client().add_channel().add_audio()
    await phone.call(served.http)
    await phone.next_event()
    await served.dial_deaf(f"/v1/realtime?call_id={phone.location.rsplit('/', 1)[1]}")
    (session,) = served.pool.sessions
    (control,) = session._others
    for _ in range(45):
        control.send({"type": "error", "pad": "A" * 1_000_000})
    async with asyncio.timeout(5):
        while session.joined:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not session.closed
    await phone.close()
    await served.free()


async def test_a_session_that_is_over_waits_for_no_client_that_does_not_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.socket.CLOSE_S", 0.1)
    caller = await served.dial_deaf()
    await caller.ask_for(20)
    (transport,) = transports(served)
    async with asyncio.timeout(5):
        while transport._size < 10_000_000:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await served.sockets.close_all()
    await served.no_connection()
    await served.free()


@pytest.mark.parametrize("megabytes", [0, 20])
async def test_nothing_is_left_of_a_client_that_vanishes(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    monkeypatch.setattr("server.socket.CLOSE_S", 0.1)
    monkeypatch.setattr("server.socket.PING_S", 0.2)
    endings = Endings()
    async with serving(pipeline, endings.watch) as served:
        caller = await served.dial_deaf()
        await caller.ask_for(megabytes)
        await served.no_connection()
        await served.free()
    assert endings.reasons == ["the client has fallen silent"]
    assert ENDINGS[endings.reasons[0]] == "vanished"


async def test_a_watcher_that_raises_costs_no_unit_and_the_others_know_that_it_is_over(
    pipeline: Pipeline,
) -> None:
    def fail(_begun: Begun) -> Observer:
        raise ZeroDivisionError

    endings = Endings()
    async with serving(pipeline, endings.watch, fail) as served:
        for _ in served.pool.units * 2:
            with pytest.raises(WSServerHandshakeError, match="500"):
                await served.dial()
            headers = {"Content-Type": "application/sdp"}
            async with served.http.post("/v1/realtime/calls", data="v=0", headers=headers) as response:
                assert response.status == 500
            await served.free()
    assert set(endings.reasons) == {"internal error"}
    assert len(endings.reasons) == 2 * 2 * len(served.pool.units)


async def test_closing_the_server_tells_its_clients(served: Served) -> None:
    caller = await served.dial()
    await caller.event("session.created")
    await served.sockets.close_all()
    message = await caller.socket.receive(timeout=5)
    assert message.type is WSMsgType.CLOSE
    assert (message.data, message.extra) == (1001, "the server is shutting down")
    await served.free()


async def test_without_an_upgrade_it_says_what_to_do(served: Served) -> None:
    async with served.http.get(URL) as response:
        assert response.status == 426
        assert (await response.json())["error"]["code"] == "upgrade_required"


# --- transcription only --------------------------------------------------------------------------------


async def test_a_transcription_session_writes_down_and_never_answers(served: Served) -> None:
    caller = await served.dial("/v1/realtime?intent=transcription")
    session = (await caller.event("session.created"))["session"]
    assert (session["type"], session["object"]) == ("transcription", "realtime.transcription_session")
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 200,
    }
    async with caller:
        await caller.send({"type": "session.update", "session": {"type": "realtime"}})
        assert (await caller.event("error"))["error"]["param"] == "session.type"
        transcription = {"model": "whisper-1", "language": "en"}
        settings = {"type": "transcription", "audio": {"input": {"transcription": transcription}}}
        await caller.send({"type": "session.update", "session": settings})
        updated = (await caller.event("session.updated"))["session"]
        assert updated["audio"]["input"]["transcription"]["language"] == "en"
        await caller.say(600, quiet_ms=600)
        done = await caller.event("conversation.item.input_audio_transcription.completed")
        assert done["transcript"] == "hello there this is a voice test"
        await caller.send(CREATE)
        assert (await caller.event("error"))["error"][
            "message"
        ] == "A transcription session has no responses."
    assert not [kind for kind in caller.kinds() if kind.startswith("response.")]


async def test_a_key_for_transcription_makes_a_transcription_session(served: Served) -> None:
    flat = {"input_audio_transcription": {"model": "whisper-1", "language": "de"}}
    made = await mint(served.http, flat, "/v1/realtime/transcription_sessions")
    assert made["object"] == "realtime.transcription_session"
    caller = await served.dial(headers={"Authorization": f"Bearer {made['client_secret']['value']}"})
    session = (await caller.event("session.created"))["session"]
    assert session["audio"]["input"]["transcription"]["language"] == "de"
    await caller.socket.close()


# --- control of a call from elsewhere ------------------------------------------------------------------


async def test_a_call_is_controlled_from_elsewhere(served: Served) -> None:
    phone = Client().add_channel().add_audio()
    await phone.call(served.http)
    assert (await phone.next_event())["type"] == "session.created"
    async with await served.dial(f"/v1/realtime?call_id={phone.location.rsplit('/', 1)[1]}") as control:
        await control.send(update(instructions="Be brief."))
        assert (await control.event("session.updated"))["session"]["instructions"] == "Be brief."
        assert (await phone.next_event())["session"]["instructions"] == "Be brief."
        await control.send({"type": "nope"}, text("[[echo:Hello.]]"), CREATE)
        done = await control.event("response.done")
        kinds = set()
        while (event := await phone.next_event())["type"] != "response.done":
            kinds.add(event["type"])
    assert event["event_id"] == done["event_id"]
    assert "error" in control.kinds()
    assert "error" not in kinds
    assert "response.output_audio.delta" not in control.kinds()
    phone.channel.send(json.dumps({"type": "input_audio_buffer.clear"}))
    while (await phone.next_event())["type"] != "input_audio_buffer.cleared":
        pass
    await phone.close()
    await served.free()


async def test_the_end_of_a_call_ends_control_of_it(served: Served) -> None:
    phone = Client().add_channel().add_audio()
    await phone.call(served.http)
    control = await served.dial(f"/v1/realtime?call_id={phone.location.rsplit('/', 1)[1]}")
    await control.event("session.created")
    async with served.http.post(phone.location + "/hangup") as response:
        assert response.status == 200
    message = await control.socket.receive(timeout=5)
    assert message.type is WSMsgType.CLOSE
    await phone.close()
    await served.free()


async def test_so_many_connections_control_a_call_and_no_more(served: Served) -> None:
    phone = Client().add_channel().add_audio()
    await phone.call(served.http)
    url = f"/v1/realtime?call_id={phone.location.rsplit('/', 1)[1]}"
    controls = [await served.dial(url) for _ in range(MOST_CONTROLS)]
    async with served.http.get(url, headers={"Upgrade": "websocket", "Connection": "upgrade"}) as refused:
        assert (refused.status, (await refused.json())["error"]["code"]) == (429, "too_many_sessions")
    await controls.pop().socket.close()
    async with asyncio.timeout(5):
        while len(controls) < MOST_CONTROLS:
            with suppress(WSServerHandshakeError):  # it is not known yet that one has left
                controls.append(await served.dial(url))
    for control in controls:
        await control.socket.close()
    await phone.close()
    await served.free()


async def test_there_is_no_control_of_a_call_that_is_not_there(served: Served) -> None:
    async with served.http.get(
        "/v1/realtime?call_id=rtc_0", headers={"Upgrade": "websocket", "Connection": "upgrade"}
    ) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "call_id_not_found"


# --- ephemeral keys ------------------------------------------------------------------------------------


async def test_sound_in_an_item_is_understood_and_answered(served: Served) -> None:
    async with await served.dial() as caller:
        await caller.send(update(audio={"input": {"transcription": {"model": "any"}}}))
        sound = np.full(24_000, 9000, "<i2")
        part = {"type": "input_audio", "audio": append(sound)["audio"]}
        item = {"type": "message", "role": "user", "content": [part]}
        await caller.send({"type": "conversation.item.create", "item": item}, {"type": "response.create"})
        heard = await caller.event("conversation.item.input_audio_transcription.completed")
        assert (heard["transcript"], heard["usage"]["seconds"]) == (HEARD, pytest.approx(1.0, abs=0.01))
        assert (await caller.event("response.done"))["response"]["status"] == "completed"


async def mint(http: Any, body: Json | None = None, path: str = "/v1/realtime/client_secrets") -> Json:
    async with http.post(path, json=body) as response:
        assert response.status == 200, await response.text()
        made: Json = await response.json()
        return made


async def test_a_session_begins_as_its_ephemeral_key_says(served: Served) -> None:
    session = {"type": "realtime", "instructions": "Be brief.", "audio": {"output": {"voice": "default"}}}
    expiry = {"anchor": "created_at", "seconds": 60}
    made = await mint(served.http, {"session": session, "expires_after": expiry})
    assert made["value"].startswith("ek_")
    assert made["session"]["instructions"] == "Be brief."
    assert made["session"]["object"] == "realtime.session"
    caller = await served.dial(headers={"Authorization": f"Bearer {made['value']}"})
    created = await caller.event("session.created")
    assert created["session"]["instructions"] == "Be brief."
    await caller.socket.close()


async def turned_away(served: Served, url: str = URL, **options: Any) -> tuple[str, int | None, str]:
    """Code of the error, close code and reason of a client that is connected only to be told why not."""
    caller = await served.dial(url, **options)
    error = await caller.event("error")
    closing = await caller.socket.receive()
    assert closing.type is WSMsgType.CLOSE
    return error["error"]["code"], caller.socket.close_code, closing.extra


async def test_an_ephemeral_key_that_was_never_made_is_refused(served: Served) -> None:
    assert await turned_away(served, headers={"Authorization": "Bearer ek_never"}) == (
        "invalid_api_key",
        3000,
        "invalid_request_error.invalid_api_key",
    )
    await served.free()


async def test_a_strict_server_turns_away_whom_the_hosted_service_turns_away() -> None:
    config = PipelineConfig(
        vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED, strict_protocol=True
    )
    async with serving(build_pipeline(config)) as strict:
        assert await turned_away(strict, "/v1/realtime") == (
            "missing_model",
            4000,
            "invalid_request_error.missing_model",
        )
        beta = await turned_away(strict, headers={"OpenAI-Beta": "realtime=v1"})
        assert beta[:2] == ("beta_api_shape_disabled", 4000)
        key = (await mint(strict.http, {}))["value"]
        async with strict.http.post(
            "/v1/realtime/client_secrets", json={"session": {"voice": "a"}}
        ) as answer:
            assert (await answer.json())["error"]["code"] == "unknown_parameter"
        async with await strict.dial("/v1/realtime", headers={"Authorization": f"Bearer {key}"}) as caller:
            await caller.send({"type": "output_audio_buffer.clear"})
            error = (await caller.event("error"))["error"]
            assert (error["code"], error["param"]) == ("invalid_value", "type")


async def test_silence_is_asked_for_in_vain_where_the_client_plays_the_sound(served: Served) -> None:
    async with await served.dial("/v1/realtime", headers={"OpenAI-Beta": "realtime=v1"}) as caller:
        await caller.send({"type": "output_audio_buffer.clear"}, text("hi"), {"type": "response.create"})
        await caller.event("response.done")
        assert "error" not in caller.kinds()


BAD_BODIES: list[tuple[bytes, dict[str, str], str]] = [
    (b'{"session":{"type":"realtime","audio":{"output":{"speed":NaN}}}}', {}, "invalid_json"),
    (b'{"session":{"type":"realtime","tools":' + b"[" * 600 + b"]" * 600 + b"}}", {}, "invalid_json"),
    (b"[]", {}, "invalid_type"),
    (b"{}", {"Content-Type": "application/json; charset=nope"}, "invalid_body"),
    (b"{}", {"Content-Encoding": "gzip"}, "invalid_body"),
    (b'{"session":{"audio":"x","voice":"alloy"}}', {}, "invalid_type"),
]


@pytest.mark.parametrize(("body", "headers", "code"), BAD_BODIES)
async def test_a_body_that_is_no_session_is_refused(
    served: Served, body: bytes, headers: dict[str, str], code: str
) -> None:
    headers = {"Content-Type": "application/json"} | headers
    async with served.http.post("/v1/realtime/client_secrets", data=body, headers=headers) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == code


async def test_half_a_character_in_a_key_is_mended(served: Served) -> None:
    body = b'{"session":{"type":"realtime","instructions":"\\ud800"}}'
    async with served.http.post("/v1/realtime/client_secrets", data=body) as response:
        key = (await response.json())["value"]
    async with await served.dial(headers={"Authorization": f"Bearer {key}"}) as caller:
        assert caller.events[0]["session"]["instructions"] == "\ufffd"


async def test_a_key_may_be_asked_for_with_a_bare_session(served: Served) -> None:
    assert (await mint(served.http, {"instructions": "Be brief."}))["session"]["instructions"] == "Be brief."


async def test_the_older_sessions_endpoint_takes_flat_settings(served: Served) -> None:
    flat = {
        "model": "gpt-4o-realtime-preview",
        "modalities": ["audio", "text"],
        "voice": "verse",
        "input_audio_format": "g711_ulaw",
        "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": None,
        "temperature": 0.8,
        "max_response_output_tokens": 200,
    }
    made = await mint(served.http, flat, "/v1/realtime/sessions")
    assert made["client_secret"]["value"].startswith("ek_")
    assert made["output_modalities"] == ["audio"]
    assert made["max_output_tokens"] == 200
    assert made["audio"]["input"]["format"] == {"type": "audio/pcmu"}
    assert made["audio"]["input"]["turn_detection"] is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session": {"type": "realtime", "bogus": 1}}, "session.bogus"),
        ({"expires_after": {"seconds": 5}}, "expires_after.seconds"),
        ({"sesion": {}}, "sesion"),
        ({"session": 5}, "session"),
    ],
)
async def test_what_is_wrong_with_a_request_for_a_key_is_named(
    served: Served, body: Json, param: str
) -> None:
    async with served.http.post("/v1/realtime/client_secrets", json=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == param
        assert response.headers["Access-Control-Allow-Origin"] == "*"
