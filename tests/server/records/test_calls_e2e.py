"""Calls of real peers and clients, in real time, and what was kept of them."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from aiohttp import ClientSession

from server.records.recording import Recording
from server.records.writer import Writer
from server.startup import STARTUP
from tests.e2e.serving import SCRIPTED
from tests.e2e.serving import serving as process
from tests.server.records.ogg import hertz, read, spans
from tests.server.records.served import (
    ASSISTANT_HZ,
    CALLER_HZ,
    Ear,
    Socket,
    Stalls,
    at,
    records,
    serving,
    sound_file,
    typed,
    until,
)
from tests.speech import pink_noise
from units.engines.scripted import ANSWER, HEARD, LONG_ANSWER

pytestmark = pytest.mark.e2e

SPOKEN_S = 0.06 * (len(ANSWER) - 1)
"""The space between its two pieces takes no time."""


async def test_a_webrtc_call_is_kept_as_both_heard_it(tmp_path: Path) -> None:
    stalls = Stalls()
    caller = Ear()
    async with serving(tmp_path) as http:
        await caller.dial(http)
        await asyncio.sleep(0.5)
        spoke = await caller.say(1.0)
        await caller.event("output_audio_buffer.stopped")
        await asyncio.sleep(0.5)
        answered = list(caller.loud)
        caller.loud.clear()
        caller.do(**typed("[[long]]"))
        caller.do(type="response.create")
        await until(lambda: len(caller.loud) > 75)
        interrupted = await caller.say(0.6)
        await caller.event("output_audio_buffer.cleared")
        cut = list(caller.loud)
        await caller.event("output_audio_buffer.started")
        await asyncio.sleep(1.0)
        hung_up = time.time()
        async with http.delete(caller.location) as response:
            assert response.status == 204
    await caller.close()

    near, said = stalls.near(), records(tmp_path)
    began = at(said[0])
    left, right = read(sound_file(tmp_path))
    assert len(left) / 48_000 == pytest.approx(hung_up - began, abs=near)

    first, second = spans(left)
    assert first == pytest.approx((spoke[0] - began, spoke[1] - began), abs=near)
    assert second == pytest.approx((interrupted[0] - began, interrupted[1] - began), abs=near)
    assert hertz(_part(left, first)) == pytest.approx(CALLER_HZ, abs=3)

    answer, long, last = spans(right)
    assert answer[0] == pytest.approx(answered[0] - began, abs=near)
    assert answer[1] == pytest.approx(answered[-1] - began, abs=near)
    assert answer[1] - answer[0] == pytest.approx(SPOKEN_S, abs=near)
    assert hertz(_part(right, answer)) == pytest.approx(ASSISTANT_HZ, abs=3)
    assert long[0] == pytest.approx(cut[0] - began, abs=near)
    assert second[0] < long[1]
    assert long[1] == pytest.approx(cut[-1] - began, abs=near)
    assert last[1] == pytest.approx(hung_up - began, abs=near)

    lines = [
        (each["type"], each.get("role"), each.get("text"), each.get("interrupted", False)) for each in said
    ]
    long_words, last_words = str(lines[4][2]), str(lines[6][2])
    assert lines == [
        ("call.began", None, None, False),
        ("speech", "user", HEARD, False),
        ("speech", "assistant", ANSWER, False),
        ("text", "user", "[[long]]", False),
        ("speech", "assistant", long_words, True),
        ("speech", "user", HEARD, False),
        ("speech", "assistant", last_words, True),
        ("call.ended", None, None, False),
    ]
    assert LONG_ANSWER.startswith(long_words)
    assert len(long_words) == pytest.approx((long[1] - long[0]) / 0.06, abs=8)
    assert ANSWER.startswith(last_words)
    assert said[-1]["reason"] == "hung up over HTTP"
    assert said[-1]["seconds"] == pytest.approx(hung_up - began, abs=near)
    assert len({(each["call_id"], each["session_id"]) for each in said}) == 1
    assert said[0]["call_id"] == caller.location.rpartition("/")[2]


async def test_a_websocket_call_is_kept_as_if_the_client_played_at_once(tmp_path: Path) -> None:
    stalls = Stalls()
    async with serving(tmp_path) as http:
        client = Socket(await http.ws_connect("/v1/realtime?model=m"))
        await client.event("session.created")
        await asyncio.sleep(0.5)
        spoke = await client.say(1.0)
        await client.event("response.done")
        answered = client.played[0][0]
        await asyncio.sleep(3.5)
        client.played.clear()
        await client.do(**typed("[[long]]"))
        await client.do(type="response.create")
        await client.event("response.done")
        long_began, _, item_id = client.played[0]
        await asyncio.sleep(1.5)
        interrupted = await client.say(0.6)
        await client.event("input_audio_buffer.speech_started")
        await client.do(
            type="conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1600
        )
        client.played.clear()
        await client.event("response.done")
        last_began = client.played[0][0]
        await asyncio.sleep(1.0)
        hung_up = time.time()
        await client.close()
        pool = http.app[STARTUP].pipeline.pool
        await until(lambda: pool.free == 2)

    near, said = stalls.near(), records(tmp_path)
    began = at(said[0])
    left, right = read(sound_file(tmp_path))
    assert len(left) / 48_000 == pytest.approx(hung_up - began, abs=near)
    first, second = spans(left)
    assert first == pytest.approx((spoke[0] - began, spoke[1] - began), abs=near)
    assert second == pytest.approx((interrupted[0] - began, interrupted[1] - began), abs=near)
    assert hertz(_part(left, first)) == pytest.approx(CALLER_HZ, abs=3)
    answer, long, last = spans(right)
    assert answer[0] == pytest.approx(answered - began, abs=near)
    assert answer[1] - answer[0] == pytest.approx(SPOKEN_S, abs=near)
    assert hertz(_part(right, answer)) == pytest.approx(ASSISTANT_HZ, abs=3)
    assert long[0] == pytest.approx(long_began - began, abs=near)
    assert long[1] - long[0] == pytest.approx(1.6, abs=near)
    assert last == pytest.approx((last_began - began, hung_up - began), abs=near)

    assert [each["type"] for each in said] == [
        "call.began",
        "speech",
        "speech",
        "text",
        "speech",
        "speech",
        "speech",
        "call.ended",
    ]
    assert [each["text"] for each in said[1:4]] == [HEARD, ANSWER, "[[long]]"]
    assert (said[4]["text"], said[4]["interrupted"]) == ("This is the first of five", True)
    assert said[5]["text"] == HEARD
    assert ANSWER.startswith(said[6]["text"])
    assert said[6]["interrupted"]
    assert said[7]["reason"] == "the client left"


def test_nothing_grows_in_a_long_recording_but_its_file(tmp_path: Path) -> None:
    now, path = 0.0, tmp_path / "call.ogg"
    recording = Recording(path, Writer(), lambda: now)
    recording.sent({"type": "session.created"})
    heard = pink_noise(0.02, -20.0)

    def go_on(seconds: int) -> int:
        """Bytes in use afterwards."""
        nonlocal now
        for _ in range(seconds * 2):
            for _ in range(25):
                now += 0.02
                recording.played(np.full(480, 1000, np.int16), 24_000)
                recording.heard(heard)
            recording.write(now)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before, size = go_on(30), path.stat().st_size
    grown = go_on(120) - before
    tracemalloc.stop()
    recording.closed("done")
    recording.write(now)
    assert grown < 20_000
    assert path.stat().st_size > 4 * size


async def test_a_killed_server_leaves_all_but_the_last_moments(tmp_path: Path) -> None:
    stalls = Stalls()
    folders = [f"--{name}={tmp_path}" for name in ("record-calls", "transcripts")]
    with process(*SCRIPTED, *folders, exits=None) as server:
        async with ClientSession(server.url) as http:
            caller = await Ear().dial(http)
            spoke = await caller.say(1.0)
            await caller.event("output_audio_buffer.stopped")
            await caller.say(1.0)
            killed = time.time()
            server.process.kill()
            server.process.wait()
            await caller.close()
    near, said = stalls.near(), records(tmp_path)
    began = at(said[0])
    left, right = read(sound_file(tmp_path))
    assert killed - began - 2.5 - near < len(left) / 48_000 <= killed - began
    assert spans(left)[0][0] == pytest.approx(spoke[0] - began, abs=near)
    assert hertz(_part(right, spans(right)[0])) == pytest.approx(ASSISTANT_HZ, abs=3)
    assert [each["text"] for each in said[1:3]] == [HEARD, ANSWER]


def _part(samples: np.ndarray, span: tuple[float, float]) -> np.ndarray:
    return samples[int((span[0] + 0.1) * 48_000) : int((span[1] - 0.1) * 48_000)]
