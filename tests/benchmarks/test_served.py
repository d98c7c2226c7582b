"""A server of its own process, and a call to it."""

from __future__ import annotations

import asyncio
import os
import sys

import numpy as np
import pytest

from benchmarks.caller import Caller, CallRefused
from benchmarks.figures import CannotRun
from benchmarks.served import Served, serving
from server.track import RATE

TAPPED = ("-m", "tests.protocol.tapped")
SCRIPTED = tuple(f"--{engine}=scripted" for engine in ("vad", "turn-detector", "stt", "llm-backend", "tts"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_process_uses_is_read() -> None:
    this = Served("", os.getpid())
    assert 20 < this.rss_mb < 4000
    assert this.cpu_s > 0.1
    assert this.switches > 0


@pytest.mark.e2e
async def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(CannotRun, match="must be one of"):
        async with serving("--stt", "nothing"):
            pass


@pytest.mark.e2e
async def test_a_caller_is_answered_and_knows_when() -> None:
    tone = (0.3 * 32767 * np.sin(2 * np.pi * 200 * np.arange(RATE) / RATE)).astype(np.int16)
    async with serving(*SCRIPTED, program=TAPPED) as served, Caller(served.url) as call:
        await call.opened()
        with pytest.raises(CallRefused, match="503"):
            await Caller(served.url).connect()
        said = call.say(tone)
        await said.done()
        sound = await call.sound(said.ended)
        assert 0.4 < sound - said.ended < 2.0
        assert said.ended < (call.first_packet(said.ended) or 0) <= sound
        stopped = await call.event("input_audio_buffer.speech_stopped")
        assert said.ended < stopped.at < sound + 1
        with pytest.raises(TimeoutError, match="the last events were"):
            await call.event("no.such.event", within=0.01)
        last = await call.silence(0.4)
        assert 2.3 < last - sound < 4.0
        assert (
            abs(len(call.heard().samples) / 48_000 - (call.heard().times[-1] - call.heard().times[0])) < 0.2
        )


@pytest.mark.e2e
async def test_a_caller_notices_that_the_server_is_gone() -> None:
    async with serving(*SCRIPTED, program=TAPPED) as served:
        call = Caller(served.url)
        await call.connect()
        assert not call.ended.is_set()
    await asyncio.wait_for(call.ended.wait(), 10)
    await call.close()
