"""What /metrics counts, from what really happens in sessions and calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from server.app import build_app
from server.media import Media
from server.metrics import Metrics
from server.settings import Settings
from server.startup import STARTUP, Startup
from server.watch import Begun
from tests.server.fakes import Client, ToneTrack
from tests.units.caller import Caller, WatchedUnit, loud, quiet, scripted
from tests.units.conftest import UnitFactory
from tests.units.odd_engines import FailingLLM
from units import PipelineConfig, build_pipeline
from units.engines.base import EngineSettings

SCRIPTED = EngineSettings("scripted")
CONFIG = PipelineConfig(
    num_pipelines=2, vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED
)


class Player(Caller):
    """A client that plays the sound itself."""

    plays_audio = False


class Counted:
    """The metrics of a server without a network."""

    def __init__(self) -> None:
        self.metrics = Metrics(Startup(lambda _: build_pipeline(CONFIG)))

    def caller(self, unit: WatchedUnit, door: Any = "webrtc") -> Caller:
        return Caller(unit, observers=[self.metrics.watch(Begun("rtc_1", door, 0))])

    def __call__(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"duologue_{name}", labels) or 0.0


@pytest.fixture
def counted() -> Counted:
    return Counted()


async def test_a_spoken_turn_is_counted_with_what_each_stage_took(
    counted: Counted, new_unit: UnitFactory
) -> None:
    caller = counted.caller(new_unit())
    assert counted("sessions", door="webrtc") == 1
    caller.say(loud(1000), quiet(1500))
    done = (await caller.got("response.done"))["response"]
    await caller.unit.eventually(lambda: caller.unit.output_queue.playing)
    assert counted("response_latency_seconds_count", door="webrtc") == 0
    caller.listen(20)
    assert counted("response_latency_seconds_count", door="webrtc") == 1
    assert 0.5 < counted("response_latency_seconds_sum", door="webrtc") < 5
    caller.listen(10_000)
    assert counted("response_latency_seconds_count", door="webrtc") == 1
    assert counted("turns_total") == 1
    assert counted("responses_total", status="completed") == 1
    assert counted("barge_ins_total") == 0
    for stage in ("vad", "stt", "llm", "tts"):
        await caller.unit.eventually(
            lambda stage=stage: counted("stage_seconds_count", stage=stage, part="all")
        )
        assert counted("stage_seconds_count", stage=stage, part="first") >= 1
        assert counted("stage_failures_total", stage=stage) == 0
    assert 1.0 < counted("stage_sound_seconds_total", stage="stt") < 2.0
    assert counted("stage_sound_seconds_total", stage="tts") > 1.0
    assert counted("tokens_total", kind="output") == done["usage"]["output_tokens"] > 0
    await caller.hang_up()
    assert counted("sessions", door="webrtc") == 0
    assert counted("sessions_ended_total", door="webrtc", end="hung_up") == 1


async def test_barging_in_is_counted_once_whether_the_answer_was_being_made_or_only_heard(
    counted: Counted,
    new_unit: Any,
) -> None:
    caller = counted.caller(new_unit())
    for times in (1, 2):
        caller.write("[[long]]")
        await caller.got("response.done", 2 * times - 1)
        caller.listen(500)
        caller.say(loud(600))
        await caller.got("output_audio_buffer.cleared", times)
        assert counted("barge_ins_total") == times
        caller.say(quiet(1500))
        await caller.got("response.done", 2 * times)
        caller.listen(20_000)
    assert counted("turns_total") == 2
    await caller.hang_up()


@pytest.mark.parametrize("truncates", [False, True])
async def test_barging_in_on_a_client_that_plays_the_sound_is_counted_whether_it_truncates_or_not(
    counted: Counted, new_unit: UnitFactory, truncates: bool
) -> None:
    caller = Player(new_unit(), observers=[counted.metrics.watch(Begun("ws_1", "websocket", 0))])
    caller.write("[[long]]")
    await caller.got("response.done")
    caller.say(loud(600))
    await caller.got("input_audio_buffer.speech_started")
    if truncates:
        item = caller.of("response.output_item.done")[0]["item"]["id"]
        caller.do("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=100)
        await caller.got("conversation.item.truncated")
    assert counted("barge_ins_total") == 1
    caller.say(quiet(1500))
    await caller.got("response.done", 2)
    assert counted("barge_ins_total") == 1
    await caller.hang_up()


async def test_stopping_an_answer_by_hand_is_no_barging_in(counted: Counted, new_unit: UnitFactory) -> None:
    caller = counted.caller(new_unit())
    caller.write("[[long]]")
    await caller.got("response.done")
    caller.listen(500)
    caller.do("output_audio_buffer.clear")
    await caller.got("output_audio_buffer.cleared")
    assert counted("barge_ins_total") == 0
    await caller.hang_up()


async def test_failures_are_counted_by_stage(counted: Counted, new_unit: UnitFactory) -> None:
    caller = counted.caller(new_unit(scripted(llm=FailingLLM())))
    caller.write("fail")
    await caller.got("response.done")
    assert counted("responses_total", status="failed") == 1
    assert counted("stage_failures_total", stage="llm") == 1
    await caller.hang_up()


def test_a_packet_that_comes_late_after_all_does_not_turn_a_counter_back(counted: Counted) -> None:
    counted.metrics.media(Media(received=50, lost=2, sent=50, sent_lost=1, jitter=0.004, round_trip=0.03))
    counted.metrics.media(Media(received=51, lost=-1, sent=50))
    assert counted("media_packets_total", direction="in") == 101
    assert counted("media_packets_lost_total", direction="in") == 2
    assert counted("media_packets_lost_total", direction="out") == 1
    assert counted("media_jitter_seconds_count", direction="in") == 1
    assert counted("media_jitter_seconds_count", direction="out") == 0
    assert counted("media_round_trip_seconds_sum") == 0.03


# --- over HTTP -----------------------------------------------------------------------------------


@pytest.fixture
async def served() -> AsyncIterator[TestClient[Any, Any]]:
    app = build_app(Settings(), build_pipeline(CONFIG))
    async with TestClient(TestServer(app)) as client:
        await app[STARTUP].loaded.wait()
        yield client


async def scraped(client: TestClient[Any, Any], **headers: str) -> dict[tuple[str, str], float]:
    """Name and labels of each sample, and its value."""
    response = await client.get("/metrics", headers=headers)
    assert response.status == 200
    families = text_string_to_metric_families(await response.text())
    return {
        (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def test_units_sessions_and_requests_are_there_to_be_scraped(served: TestClient[Any, Any]) -> None:
    samples = await scraped(served)
    assert samples["duologue_ready", ""] == 1
    assert samples["duologue_units", "state=idle"] == 2
    assert samples["process_open_fds", ""] > 0
    assert samples["duologue_record_failures_total", ""] == 0
    async with served.ws_connect("/v1/realtime?model=gpt-realtime") as socket:
        assert (await socket.receive_json())["type"] == "session.created"
        samples = await scraped(served)
        assert samples["duologue_sessions", "door=websocket"] == 1
        assert samples["duologue_units", "state=active"] == 1
    await served.request("PROPFIND", "/v1/pot")
    async with asyncio.timeout(5):
        while (samples := await scraped(served))["duologue_sessions", "door=websocket"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert samples["duologue_sessions_ended_total", "door=websocket,end=hung_up"] == 1
    assert samples["duologue_http_requests_total", "method=GET,route=/v1/realtime,status=101"] == 1
    assert samples["duologue_http_requests_total", "method=other,route=none,status=404"] == 1


async def test_openmetrics_is_spoken_to_those_who_ask_for_it(served: TestClient[Any, Any]) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    response = await served.get("/metrics", headers={"Accept": accept})
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert (await response.text()).endswith("# EOF\n")


async def test_a_version_that_is_none_gets_the_text_format(served: TestClient[Any, Any]) -> None:
    await scraped(served, Accept="application/openmetrics-text;version=abc")


async def test_metrics_need_a_key_where_keys_are_needed() -> None:
    app = build_app(Settings(api_key="a-key-of-sixteen-letters"), build_pipeline(CONFIG))
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/metrics")).status == 401
        await scraped(client, Authorization="Bearer a-key-of-sixteen-letters")


@pytest.mark.e2e
async def test_a_call_counts_its_packets_and_how_they_travel(served: TestClient[Any, Any]) -> None:
    client = Client()
    try:
        await client.add_audio(ToneTrack()).add_channel().call(served)
        async with asyncio.timeout(10):
            while len(client.frames) < 75:  # noqa: ASYNC110 - media have no event to wait for
                await asyncio.sleep(0.02)
        await served.post(f"{client.location}/hangup")
    finally:
        await client.close()
    samples = await scraped(served)
    for direction in ("in", "out"):
        assert samples["duologue_media_packets_total", f"direction={direction}"] >= 70
    assert samples["duologue_media_packets_lost_total", "direction=in"] == 0
    assert samples["duologue_media_jitter_seconds_count", "direction=in"] >= 1
    assert samples["duologue_media_jitter_seconds_sum", "direction=in"] < 0.5
    assert samples["duologue_sessions_ended_total", "door=webrtc,end=hung_up"] == 1
