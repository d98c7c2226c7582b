"""Two real aiortc peers in one process, over HTTP, with fake units."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator

import numpy as np
import psutil
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from server.calls import Calls, setup_calls
from server.client_secrets import ClientSecrets
from tests.server.fakes import Client, FakePool, FakeSettings, Tone, ToneTrack, answer_to

pytestmark = pytest.mark.e2e


class House:
    """A server with a pool of fake units and a way to reach it."""

    def __init__(self, pool: FakePool, calls: Calls, http: ClientSession) -> None:
        self.pool = pool
        self.calls = calls
        self.http = http

    @property
    def unit(self):
        return self.pool.units[0]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    pool = FakePool()
    app = web.Application()
    calls = setup_calls(app, pool, FakeSettings(), ClientSecrets(pool))
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as http:
        yield House(pool, calls, http)  # no TestClient: that keeps every response


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    yield client
    await client.close()


async def until(fact, seconds: float = 5.0) -> float:
    """Wait for a fact about another task; return how long it took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    while not fact():
        assert loop.time() - start < seconds, "it did not come true in time"
        await asyncio.sleep(0.01)
    return loop.time() - start


def received(client: Client) -> np.ndarray:
    """What the client has heard, float mono at 48 kHz."""
    frames = [x.to_ndarray().reshape(-1, len(x.layout.channels)) for x in client.frames]
    rate = client.frames[0].sample_rate
    assert rate in (8_000, 48_000)
    return np.concatenate(frames).astype(float).mean(axis=1)


def hertz(samples: np.ndarray, rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))


def loud(samples: np.ndarray, level: float = 800) -> tuple[int, int]:
    """First and last sample above ``level``."""
    (where,) = np.nonzero(np.abs(samples) > level)
    return int(where[0]), int(where[-1])


async def test_a_tone_arrives_whole_in_pitch_and_without_clicks(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    await until(lambda: client.frames)
    house.unit.output_queue.say(1.5)
    await until(lambda: len(client.frames) > 110)
    samples = received(client)
    first, last = loud(samples)
    assert abs((last - first) / 48_000 - 1.5) < 0.025
    tone = samples[first + 1000 : last - 1000]
    assert abs(hertz(tone, 48_000) - 300) < 2
    steepest = 8000 * 2 * np.pi * 300 / 48_000
    assert np.abs(np.diff(tone)).max() < 1.5 * steepest


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100])
async def test_speech_at_any_rate_keeps_its_duration(house: House, client: Client, rate: int) -> None:
    house.unit.output_queue = Tone(rate=rate)
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    await until(lambda: client.frames)
    house.unit.output_queue.say(1.0)
    await until(lambda: len(client.frames) > 85)
    first, last = loud(received(client))
    assert abs((last - first) / 48_000 - 1.0) < 0.025


async def test_the_unit_hears_the_caller_at_16_khz_in_true_time(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    session = house.unit.last
    await until(lambda: session.heard)
    heard_before, start = len(session.heard), asyncio.get_running_loop().time()
    await until(lambda: len(session.heard) > heard_before + 100)
    samples = np.concatenate(session.heard[heard_before:])
    assert abs(len(samples) / 16_000 - (asyncio.get_running_loop().time() - start)) < 0.06
    assert samples.dtype == np.float32
    assert abs(hertz(samples, 16_000) - 300) < 2
    assert 0.15 < np.abs(samples).max() < 0.3


async def test_events_travel_both_ways_and_an_early_one_is_handled_once(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel({"type": "early"}).call(house.http)
    assert (await client.next_event())["type"] == "session.created"
    assert await client.next_answer() == "early"
    client.channel.send('{"type": "later"}')
    assert await client.next_answer() == "later"
    client.channel.send(b"\x00")
    assert await client.next_answer() == "bytes"
    assert len(house.unit.last.handled) == 3


async def test_a_channel_made_after_the_media_works(house: House, client: Client) -> None:
    client.add_audio(ToneTrack()).add_channel(label="something else")
    await client.call(house.http)
    client.add_channel()
    assert (await client.next_event())["type"] == "session.created"


async def test_audio_without_a_data_channel_works(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).call(house.http)
    await until(lambda: len(client.frames) > 10 and len(house.unit.last.heard) > 10)


async def test_a_data_channel_without_audio_works_and_speech_passes_in_real_time(
    house: House, client: Client
) -> None:
    await client.add_channel().call(house.http)
    assert (await client.next_event())["type"] == "session.created"
    house.unit.output_queue.say(0.5)
    assert 0.3 < await until(lambda: not len(house.unit.output_queue._samples)) < 0.9
    assert "m=audio" not in client.answer


async def test_a_large_event_arrives_whole(house: House, client: Client) -> None:
    await client.add_channel().call(house.http)
    await client.next_event()
    event = answer_to("ä" * 30_000)
    house.unit.last.transport.send(event)
    assert await client.next_event() == event


async def test_a_listener_hears_and_sends_nothing(house: House, client: Client) -> None:
    await client.add_audio(direction="recvonly").add_channel().call(house.http)
    assert "a=sendonly" in client.answer
    house.unit.output_queue.say(0.3)
    await until(lambda: client.frames and np.abs(received(client)).max() > 4000)
    assert house.unit.last.heard == []


async def test_a_talker_who_does_not_listen_is_heard(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack(), "sendonly").add_channel().call(house.http)
    assert "a=recvonly" in client.answer
    house.unit.output_queue.say(0.3)
    await until(lambda: len(house.unit.last.heard) > 10 and not len(house.unit.output_queue._samples))


@pytest.mark.parametrize("codec", ["audio/PCMU", "audio/PCMA"])
async def test_g711_works_both_ways(house: House, client: Client, codec: str) -> None:
    await client.add_audio(ToneTrack()).prefer(codec).add_channel().call(house.http)
    await until(lambda: client.frames)
    house.unit.output_queue.say(1.0)
    await until(lambda: len(client.frames) > 85 and len(house.unit.last.heard) > 50)
    samples = received(client)
    first, last = loud(samples)
    assert abs((last - first) / 8_000 - 1.0) < 0.025
    assert abs(hertz(samples[first:last], 8_000) - 300) < 4
    assert abs(hertz(np.concatenate(house.unit.last.heard), 16_000) - 300) < 4


async def test_hanging_up_over_http_frees_the_unit_at_once(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    assert house.pool.free == 0
    async with house.http.post(client.location + "/hangup") as response:
        assert (response.status, await response.read()) == (200, b"")
    assert house.pool.free == 1
    await until(lambda: client.connection.connectionState == "closed")
    async with house.http.delete(client.location) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "call_id_not_found"


async def test_a_session_that_ends_itself_ends_the_call(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    house.unit.last.transport.close("done")
    assert house.pool.free == 1
    await until(lambda: client.connection.connectionState == "closed")


async def test_a_client_that_closes_frees_the_unit_at_once(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    await client.close()
    assert await until(lambda: house.pool.free == 1) < 0.5


async def test_closing_only_the_channel_ends_the_call(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    await client.next_event()
    client.channel.close()
    assert await until(lambda: house.pool.free == 1) < 0.5


@pytest.mark.parametrize("kind", ["audio and events", "audio", "events", "recvonly"])
async def test_a_killed_peer_frees_the_unit_within_six_seconds(
    house: House, client: Client, kind: str
) -> None:
    if kind != "events":
        client.add_audio(
            ToneTrack() if kind != "recvonly" else None, "recvonly" if kind == "recvonly" else "sendrecv"
        )
    if kind in ("audio and events", "events"):
        client.add_channel()
    await client.call(house.http)
    await until(lambda: house.unit.session is not None)
    await asyncio.sleep(0.3)
    await client.vanish()
    assert 4.5 < await until(lambda: house.pool.free == 1, 8) < 6


async def test_a_client_that_only_listens_and_is_quiet_stays(house: House, client: Client) -> None:
    await client.add_channel().call(house.http)
    await asyncio.sleep(7)
    assert house.pool.free == 0


async def test_four_seconds_without_a_network_do_not_end_the_call(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    await client.next_event()
    resume = client.pause()
    await asyncio.sleep(4)
    resume()
    await asyncio.sleep(2)
    client.channel.send('{"type": "back"}')
    assert await client.next_answer() == "back"


async def test_a_turn_can_end_when_the_caller_sends_no_more_packets(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    session = house.unit.last
    await until(lambda: len(session.heard) > 20)
    client.connection.getSenders()[0].replaceTrack(None)
    await asyncio.sleep(0.1)
    before = len(session.heard)
    await asyncio.sleep(1)
    silence = np.concatenate(session.heard[before:])
    assert 0.7 < len(silence) / 16_000 < 1.3
    assert np.abs(silence[1600:]).max() == 0


async def test_a_refreshed_page_gets_a_unit_again(house: House) -> None:
    for _ in range(5):
        client = Client()
        await client.add_audio(ToneTrack()).add_channel().call(house.http)
        await client.close()
        await until(lambda: house.pool.free == 1)


async def test_one_call_too_many_is_told_to_come_back(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    other = Client().add_audio(ToneTrack()).add_channel()
    headers = {"Content-Type": "application/sdp"}
    async with house.http.post("/v1/realtime/calls", data=await other.offer(), headers=headers) as response:
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        assert (await response.json())["error"]["code"] == "no_capacity"
    await other.close()


async def test_a_client_that_never_connects_frees_the_unit(house: House, client: Client) -> None:
    house.calls._limits = type(house.calls._limits)(connect=0.5)
    headers = {"Content-Type": "application/sdp"}
    offer = await client.add_audio(ToneTrack()).add_channel().offer()
    async with house.http.post("/v1/realtime/calls", data=offer, headers=headers) as response:
        assert response.status == 201
    assert house.pool.free == 0
    assert await until(lambda: house.pool.free == 1) < 1


async def test_an_offer_without_candidates_connects(house: House, client: Client) -> None:
    def without_candidates(sdp: str) -> str:
        return "".join(x for x in sdp.splitlines(True) if "candidate" not in x)

    await client.add_audio(ToneTrack()).add_channel().call(house.http, without_candidates)
    assert (await client.next_event())["type"] == "session.created"


async def test_names_that_only_the_local_network_knows_do_not_delay_a_call(
    house: House, client: Client
) -> None:
    def hidden(sdp: str) -> str:
        lines = [x for x in sdp.splitlines(True) if "candidate" not in x]
        name = "a=candidate:1 1 udp 2113937151 3c8a1f0e-51d6-4f0e-9a51-5a1f0e3c8a1f.local 50000 typ host\r\n"
        return "".join(lines[:]).replace("a=rtcp-mux\r\n", "a=rtcp-mux\r\n" + name)

    client.add_audio(ToneTrack()).add_channel()
    start = asyncio.get_running_loop().time()
    await client.call(house.http, hidden)
    assert asyncio.get_running_loop().time() - start < 0.8


async def test_an_offer_without_bundling_connects(house: House, client: Client) -> None:
    def unbundled(sdp: str) -> str:
        return "".join(x for x in sdp.splitlines(True) if "BUNDLE" not in x)

    await client.add_audio(ToneTrack()).add_channel().call(house.http, unbundled)
    assert (await client.next_event())["type"] == "session.created"
    await until(lambda: client.frames)


async def test_shutting_down_ends_all_calls(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    await house.calls.close_all()
    assert house.pool.free == 1
    await until(lambda: client.connection.connectionState == "closed")


async def test_calls_leave_nothing_behind(house: House) -> None:
    async def cycle(clients: int) -> None:
        for number in range(clients):
            client = Client()
            await client.add_audio(ToneTrack()).add_channel().call(house.http)
            await client.close()
            await until(lambda: house.pool.free == 1)
            if number % 20 == 0:
                house.unit.sessions.clear()  # which the fake keeps
                gc.collect()  # newer Pythons let hundreds of calls end before they do so themselves
        await until(lambda: not house.calls._ending)

    await cycle(20)
    before = _belongings()
    await cycle(int(os.environ.get("CALL_CYCLES", "200")))
    grown = {name: value - before[name] for name, value in _belongings().items()}
    allowed = {"native threads": 4, "MB": 10, "files": 2, "tasks": 2}
    assert all(grown[name] <= limit for name, limit in allowed.items()), grown


def _belongings() -> dict[str, float]:
    """What this process holds."""
    return {
        "native threads": len(os.listdir("/proc/self/task")),
        "MB": psutil.Process().memory_info().rss / 1e6,
        "files": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
    }


async def test_at_five_percent_loss_only_what_was_lost_is_missing(house: House, client: Client) -> None:
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    session = house.unit.last
    await until(lambda: session.heard)
    transport = client.connection.getSenders()[0].transport
    send, sent = transport._send_rtp, []

    async def lossy(data: bytes) -> None:
        if 64 <= data[1] & 0x7F < 96:
            await send(data)
            return
        sent.append(len(sent) % 20 != 7)
        if sent[-1]:
            await send(data)

    transport._send_rtp = lossy
    before = len(session.heard)
    await until(lambda: len(sent) >= 200, 8)
    samples = np.concatenate(session.heard[before:])
    assert abs(len(samples) / 320 - 200) <= 4
    missing = 1 - np.mean(samples**2) / (np.abs(samples).max() ** 2 / 2)
    assert missing < sent.count(False) / len(sent) + 0.05


async def test_a_lost_packet_leaves_no_delay_behind(house: House, client: Client) -> None:
    microphone = ToneTrack()
    microphone.level = 0
    await client.add_audio(microphone).add_channel().call(house.http)
    session = house.unit.last
    await until(lambda: session.heard)
    transport = client.connection.getSenders()[0].transport
    send, sent = transport._send_rtp, []

    async def losing_one(data: bytes) -> None:
        sent.append(data)
        if len(sent) != 5:
            await send(data)

    transport._send_rtp = losing_one
    await until(lambda: len(sent) > 40)
    microphone.level = 8000
    assert await until(lambda: np.abs(session.heard[-1]).max() > 0.1) < 0.12


async def test_a_loop_that_stood_still_does_not_take_the_peer_for_dead(house: House, client: Client) -> None:
    limits = type(house.calls._limits)
    house.calls._limits = limits(silence=0.5, ping=0.2, check=0.1)
    await client.add_audio(ToneTrack()).add_channel().call(house.http)
    await client.next_event()
    for _ in range(3):
        time.sleep(1)  # noqa: ASYNC251 (that is the point)
        await asyncio.sleep(0.5)
    assert house.pool.free == 0
