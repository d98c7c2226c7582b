"""Barge-in: from the first sample that the caller speaks into the answer to the last sound of it."""

from __future__ import annotations

import asyncio
import random

import numpy as np

from benchmarks.caller import Caller
from benchmarks.clips import beginning, clips
from benchmarks.figures import Figure
from benchmarks.served import SCRIPTED, serving
from benchmarks.voice import Progress
from server.track import FRAME
from units.messages import Int16

TARGET_MS = 250.0
LONG = "[[long]]"
"""What makes the scripted language model talk for twenty seconds."""


async def barge_in(quick: bool, progress: Progress) -> list[Figure]:
    """Interrupt a long answer again and again."""
    spoken = [beginning(clip, 0.7) for clip in clips()]
    times = 5 if quick else 30
    async with serving(*SCRIPTED) as served, Caller(served.url) as call:
        await call.opened()
        taken = []
        for n in range(times):
            progress(f"barge-in: {n + 1} of {times}")
            taken.append(await _interrupt(call, spoken[n % len(spoken)]))
    return [
        Figure("barge-in: onset to last sound", "ms", tuple(each[1] for each in taken), TARGET_MS),
        Figure("  onset to speech_started", "ms", tuple(each[0] for each in taken)),
    ]


async def _interrupt(call: Caller, spoken: Int16) -> tuple[float, float]:
    """Have something long said, speak into it; when that was noticed, and the last sound, in ms."""
    await call.silence(0.3)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": LONG}]}
    call.send({"type": "conversation.item.create", "item": item})
    call.send({"type": "response.create"})
    await call.sound(asyncio.get_running_loop().time())
    await call.say(np.zeros(FRAME * random.randint(25, 50), np.int16)).done()
    said = call.say(spoken)
    started = await call.event("input_audio_buffer.speech_started")
    last = await call.silence(0.4)
    await said.done()
    await _answered(call, said.ended)
    return 1000 * (started.at - said.began), 1000 * (last - said.began)


async def _answered(call: Caller, after: float) -> None:
    """The interruption is answered, too; that is not of interest here."""
    await call.sound(after)
    call.send({"type": "output_audio_buffer.clear"})
