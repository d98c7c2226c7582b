"""What units and calls cost: memory, and CPU time while nothing happens and while much does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.caller import Caller
from benchmarks.clips import clips, ending
from benchmarks.figures import Figure
from benchmarks.served import SCRIPTED, Served, serving
from benchmarks.voice import Progress

MORE_UNITS = 32
UNIT_TARGET_MB = 5.0
IDLE_TARGET_PERCENT = 1.0
LONG = "[[long]]"
_SETTLE_S = 2.0


async def memory(quick: bool, progress: Progress) -> list[Figure]:
    """Resident memory of a server with few and with many units, and with calls in progress."""
    per_unit, per_call = [], []
    calls = 4 if quick else 8
    for turn in range(1 if quick else 3):
        progress(f"memory: {turn + 1}")
        async with serving(*SCRIPTED, units=1) as served:
            few = await _rss(served)
        async with serving(*SCRIPTED, units=1 + MORE_UNITS) as served:
            many = await _rss(served)
            async with calling(served, 1) as (first,):
                await _converse(first)
                warm = await _rss(served)
                async with calling(served, calls) as others:
                    await asyncio.gather(*map(_converse, others))
                    per_call.append((await _rss(served) - warm) / calls)
        per_unit.append((many - few) / MORE_UNITS)
    return [
        Figure("memory per added unit", "MB", tuple(per_unit), UNIT_TARGET_MB),
        Figure("memory per call, after a turn", "MB", tuple(per_call)),
    ]


async def idle(quick: bool, progress: Progress) -> list[Figure]:
    """A server with many units and no calls."""
    return await _idle("scripted engines", SCRIPTED, quick, progress)


async def idle_real(quick: bool, progress: Progress) -> list[Figure]:
    """The same with the default models loaded."""
    return await _idle("default models", (), quick, progress)


async def _idle(engines: str, flags: tuple[str, ...], quick: bool, progress: Progress) -> list[Figure]:
    progress(f"idle, {engines}")
    async with serving(*flags, units=MORE_UNITS) as served:
        await asyncio.sleep(_SETTLE_S)
        percent, switches = await usage(served, 2 if quick else 10)
    return [
        Figure(f"idle, {MORE_UNITS} units, {engines}", "% core", (percent,), IDLE_TARGET_PERCENT),
        Figure("  context switches", "1/s", (switches,)),
    ]


async def calls(quick: bool, progress: Progress) -> list[Figure]:
    """CPU time of the server for calls in which nobody speaks, and in which it speaks."""
    number, seconds = (2, 3) if quick else (8, 10)
    async with serving(*SCRIPTED, units=number) as served:
        await asyncio.sleep(_SETTLE_S)
        async with calling(served, number) as callers:
            progress(f"calls: {number} silent")
            await asyncio.sleep(_SETTLE_S)
            silent, _ = await usage(served, seconds)
            progress(f"calls: {number} listening to a long answer")
            for caller in callers:
                _ask(caller, LONG)
            await asyncio.sleep(_SETTLE_S)
            speaking, _ = await usage(served, seconds)
    return [
        Figure(f"a silent call, of {number}", "% core", (silent / number,)),
        Figure(f"a call that is being answered, of {number}", "% core", (speaking / number,)),
    ]


async def usage(served: Served, seconds: float) -> tuple[float, float]:
    """Per cent of a core that the server takes over ``seconds``, and its context switches a second."""
    loop = asyncio.get_running_loop()
    began, cpu, switches = loop.time(), served.cpu_s, served.switches
    await asyncio.sleep(seconds)
    passed = loop.time() - began
    return 100 * (served.cpu_s - cpu) / passed, (served.switches - switches) / passed


@asynccontextmanager
async def calling(served: Served, number: int) -> AsyncIterator[list[Caller]]:
    """``number`` calls at once, whose sound is not recorded."""
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(served.url, record=False)) for _ in range(number)]
        for caller in callers:
            await caller.opened()
        yield callers


async def _converse(caller: Caller) -> None:
    """One spoken turn, answered and heard to the end."""
    caller.say(ending(clips()[0], 1.5))
    await caller.event("output_audio_buffer.stopped", within=30)


def _ask(caller: Caller, text: str) -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    caller.send({"type": "conversation.item.create", "item": item})
    caller.send({"type": "response.create"})


async def _rss(served: Served) -> float:
    await asyncio.sleep(_SETTLE_S)
    return served.rss_mb
