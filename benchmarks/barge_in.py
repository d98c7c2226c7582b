"""Barge-in: from the first sample that the caller speaks into the answer to the last sound of it."""

from __future__ import annotations

import random
import time

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
"""What makes the scripted language model talk for fifteen seconds."""

UNANSWERED = {
    "type": "session.update",
    "session": {
        "type": "realtime",
        "audio": {"input": {"turn_detection": {"type": "server_vad", "create_response": False}}},
    },
}
"""Interruptions are heard, and that is all."""

STORY = "Tell me a long story about a lighthouse and its keeper, in at least ten sentences."


async def barge_in(quick: bool, progress: Progress) -> list[Figure]:
    """Interrupt a long answer again and again."""
    return await _measure("scripted engines", SCRIPTED, LONG, 5 if quick else 30, progress)


async def barge_in_real(quick: bool, progress: Progress) -> list[Figure]:
    """The same while the default models are at work on the rest of the answer."""
    return await _measure("default models", (), STORY, 3 if quick else 20, progress)


async def _measure(
    engines: str, flags: tuple[str, ...], prompt: str, times: int, progress: Progress
) -> list[Figure]:
    spoken = [beginning(clip, 0.7) for clip in clips()]
    async with serving(*flags) as served, Caller(served.url) as call:
        await call.opened()
        call.send(UNANSWERED)
        taken = []
        for n in range(times):
            progress(f"barge-in, {engines}: {n + 1} of {times}")
            taken.append(await _interrupt(call, prompt, spoken[n % len(spoken)]))
    return [
        Figure(f"barge-in to silence, {engines}", "ms", tuple(each[1] for each in taken), TARGET_MS),
        Figure("  speech_started", "ms", tuple(each[0] for each in taken)),
    ]


async def _interrupt(call: Caller, prompt: str, spoken: Int16) -> tuple[float, float]:
    """Have something long said, speak into it; when that was noticed, and the last sound, in ms."""
    await call.silence(0.3)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}
    call.send({"type": "conversation.item.create", "item": item})
    call.send({"type": "response.create"})
    await call.sound(time.monotonic(), within=60)
    await call.say(np.zeros(FRAME * random.randint(25, 50), np.int16)).done()
    said = call.say(spoken)
    started = await call.event("input_audio_buffer.speech_started")
    last = await call.silence(0.4)
    await call.event("input_audio_buffer.committed", after=said.began)
    return 1000 * (started.at - said.began), 1000 * (last - said.began)
