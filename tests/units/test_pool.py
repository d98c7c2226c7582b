"""The pool: claims, drains, quarantine, replacement, shutdown."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tests.units.caller import TIMEOUT, Caller, Json, WatchedUnit, loud, said, scripted
from tests.units.odd_engines import DyingLLM, GatedLLM
from units import Engines, PipelineUnit, PoolFull, UnitPool, UnitState, build_unit
from units.session import SHUTTING_DOWN

MakePool = Callable[..., UnitPool]


class WatchedPool(UnitPool):
    """Changes of its units' states can be waited for."""

    def __init__(self, size: int, engines: Engines, **kwargs: Any) -> None:
        super().__init__(size, lambda index: WatchedUnit(engines), **kwargs)
        self._changed = asyncio.Event()
        for slot in self._slots:
            slot.move = partial(self._moved, slot.move)  # type: ignore[method-assign]

    def _moved(self, move: Callable[[UnitState], None], state: UnitState) -> None:
        move(state)
        self._changed.set()

    async def reaches(self, *states: UnitState) -> None:
        """Wait until the units are in these states."""
        async with asyncio.timeout(TIMEOUT):
            while [status.state for status in self.states()] != [*states]:
                self._changed.clear()
                await self._changed.wait()


class Leaving(Caller):
    """Hangs up the moment it is told of ``last``."""

    def __init__(self, unit: Any, last: str) -> None:
        self.last = last
        super().__init__(unit)

    def send(self, event: Json) -> None:
        super().send(event)
        if event["type"] == self.last:
            self.session.close("gone")


@pytest_asyncio.fixture
async def new_pool() -> AsyncIterator[Callable[..., WatchedPool]]:
    pools: list[WatchedPool] = []

    def make(size: int = 2, engines: Engines | None = None, **kwargs: Any) -> WatchedPool:
        pool = WatchedPool(size, engines or scripted(), **kwargs)
        pool.start()
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        assert await pool.stop() == []


async def test_the_first_free_unit_is_claimed(new_pool: Callable[..., WatchedPool]) -> None:
    pool = new_pool(2)
    assert pool.claim() is pool.units[0]
    assert pool.claim() is pool.units[1]
    assert pool.free == 0


async def test_a_full_pool_refuses(new_pool: Callable[..., WatchedPool]) -> None:
    pool = new_pool(1)
    pool.claim()
    with pytest.raises(PoolFull, match="in use"):
        pool.claim()


async def test_a_pool_that_is_not_started_or_is_stopped_refuses() -> None:
    pool = UnitPool(1, lambda index: build_unit(scripted(), index=index))
    assert pool.free == 0
    with pytest.raises(PoolFull):
        pool.claim()
    pool.start()
    await pool.stop()
    with pytest.raises(PoolFull, match="stopping"):
        pool.claim()


def test_a_pool_needs_a_unit() -> None:
    with pytest.raises(ValueError, match="at least one"):
        UnitPool(0, lambda index: build_unit(scripted()))


async def test_a_closed_session_gives_its_unit_back(new_pool: Callable[..., WatchedPool]) -> None:
    pool = new_pool(1)
    unit = pool.claim()
    assert unit.session is not None
    name = unit.session.name
    assert [(status.state, status.session) for status in pool.states()] == [(UnitState.ACTIVE, name)]
    unit.session.close()
    assert pool.states()[0].state is UnitState.DRAINING
    await pool.reaches(UnitState.IDLE)
    assert unit.session is None
    assert pool.claim() is unit


async def test_closing_twice_is_closing_once(new_pool: Callable[..., WatchedPool]) -> None:
    pool = new_pool(1)
    caller = Caller(pool.claim())  # type: ignore[arg-type]
    caller.session.close("first")
    caller.session.close("second")
    await pool.reaches(UnitState.IDLE)
    assert caller.closed == ["first"]


@pytest.mark.parametrize(
    "last",
    [
        "input_audio_buffer.speech_started",
        "response.done",
        "output_audio_buffer.cleared",
        "conversation.item.truncated",
    ],
)
async def test_who_hangs_up_while_barging_in_leaves_a_free_unit_and_nothing_in_it(
    new_pool: Callable[..., WatchedPool], last: str
) -> None:
    pool = new_pool(1, scripted(llm=GatedLLM("This is the first sentence of two. ")))
    leaving = Leaving(pool.claim(), last)
    leaving.write("hi")
    await leaving.unit.eventually(lambda: leaving.unit.output_queue.waiting > 24_000)
    leaving.listen(400)
    leaving.say(loud(300))
    await leaving.unit.eventually(lambda: leaving.closed)
    length = len(leaving.log)
    await pool.reaches(UnitState.IDLE)
    other = Caller(pool.claim())  # type: ignore[arg-type]
    other.write("hi")
    await other.got("response.done")
    assert said(other.responses[0]) == "This is the first sentence of two. And done."
    assert leaving.types[-1] == last
    assert len(leaving.log) == length
    await other.hang_up()


async def test_a_unit_comes_back_wherever_a_hang_up_meets_a_barge_in(
    new_pool: Callable[..., WatchedPool],
) -> None:
    pool = new_pool(1)
    for ms in range(0, 400, 10):
        caller = Caller(pool.claim())  # type: ignore[arg-type]
        caller.write("[[long]]")
        await caller.unit.eventually(lambda caller=caller: caller.unit.output_queue.waiting)
        caller.say(loud(ms))
        for _ in range(ms // 100):
            await asyncio.sleep(0)
        caller.session.close()
        await pool.reaches(UnitState.IDLE)


async def test_two_hundred_sessions_leave_nothing_behind(new_pool: Callable[..., WatchedPool]) -> None:
    pool = new_pool(1)

    async def converse(sessions: int) -> tuple[int, int]:
        """Objects and threads that there are afterwards."""
        for _ in range(sessions):
            caller = Caller(pool.claim())  # type: ignore[arg-type]
            caller.write("hi")
            await caller.got("response.done")
            caller.say(loud(100))
            caller.session.close()
            await pool.reaches(UnitState.IDLE)
            caller.unit.ends.clear()  # what the test itself notes of each
            caller.unit.submitted.clear()
        gc.collect()
        return len(gc.get_objects()), threading.active_count()

    objects, threads = await converse(50)
    more_objects, more_threads = await converse(200)
    assert more_objects - objects < 2 * 200  # timers that were called off stay for a while
    assert more_threads == threads


async def test_a_wedged_unit_is_quarantined_and_comes_back_by_itself(
    new_pool: Callable[..., WatchedPool],
) -> None:
    llm = GatedLLM("Well, ", rude=True)
    pool = new_pool(2, scripted(llm=llm), quarantine_after=0.01)
    caller = Caller(pool.claim())  # type: ignore[arg-type]
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.session.close()
    await pool.reaches(UnitState.QUARANTINED, UnitState.IDLE)
    assert pool.claim() is pool.units[1]
    llm.gate.set()
    await pool.reaches(UnitState.IDLE, UnitState.ACTIVE)
    assert pool.claim() is pool.units[0]


async def test_a_unit_whose_stage_died_is_replaced(new_pool: Callable[..., WatchedPool]) -> None:
    pool = new_pool(1, scripted(llm=DyingLLM()))
    dead = pool.claim()
    caller = Caller(dead)  # type: ignore[arg-type]
    caller.write("hi")
    await caller.unit.eventually(lambda: caller.closed)
    assert caller.closed == ["internal error"]
    unit = pool.claim()
    assert unit is not dead
    assert unit.index == dead.index
    again = Caller(unit)  # type: ignore[arg-type]
    assert again.types == ["session.created"]


async def test_a_unit_that_dies_while_it_drains_is_replaced(new_pool: Callable[..., WatchedPool]) -> None:
    llm = GatedLLM(rude=True)
    pool = new_pool(1, scripted(llm=llm))
    dead = pool.claim()
    caller = Caller(dead)  # type: ignore[arg-type]
    caller.write("hi")
    await asyncio.to_thread(llm.waiting.wait, TIMEOUT)
    caller.session.close()
    assert pool.states()[0].state is UnitState.DRAINING
    llm.generate = DyingLLM().generate  # type: ignore[method-assign]
    dead.handlers[3].inbox.put(None)
    dead._die()
    llm.gate.set()
    assert pool.claim() is not dead


async def test_a_pool_that_winds_down_is_unused_once_the_last_session_has_ended(
    new_pool: Callable[..., WatchedPool],
) -> None:
    pool = new_pool(3)
    idle, talking = Caller(pool.claim()), Caller(pool.claim())  # type: ignore[arg-type]
    talking.write("hi")
    assert pool.wind_down() == 1
    assert (idle.closed, talking.closed) == ([SHUTTING_DOWN], [])
    with pytest.raises(PoolFull):
        pool.claim()
    await pool.wait_unused(0.01)
    assert pool.sessions == [talking.session]
    waiting = asyncio.create_task(pool.wait_unused(TIMEOUT))
    await talking.got("response.done")
    talking.listen(5_000)
    await waiting
    assert talking.closed == [SHUTTING_DOWN]
    assert pool.sessions == []


async def test_a_call_whose_engine_hangs_does_not_keep_the_others_from_finishing() -> None:
    llm = GatedLLM(rude=True)
    pool = WatchedPool(3, scripted(llm=llm))
    pool.start()
    hung, idle, talking = (Caller(pool.claim()) for _ in range(3))  # type: ignore[arg-type]
    hung.write("hi")
    await asyncio.to_thread(llm.waiting.wait, TIMEOUT)
    talking.write("hi")
    await talking.got("response.output_audio_transcript.delta")
    assert pool.wind_down() == 2
    assert idle.closed == [SHUTTING_DOWN]
    await talking.got("response.done")
    talking.listen(5_000)
    await talking.unit.eventually(lambda: talking.closed)
    await pool.wait_unused(0.2)
    assert (talking.closed, hung.closed) == ([SHUTTING_DOWN], [])
    assert [event["code"] for event in (each["error"] for each in hung.of("error"))] == [
        "server_shutting_down"
    ]
    assert await pool.stop(0.2) == ["unit 0 llm", "unit 0 output", "unit 0 tts"]
    assert hung.closed == [SHUTTING_DOWN]
    llm.gate.set()
    assert await pool.stop() == []


async def test_stop_closes_the_sessions_and_ends_all_threads() -> None:
    pool = WatchedPool(2, scripted())
    pool.start()
    caller = Caller(pool.claim())  # type: ignore[arg-type]
    assert await pool.stop() == []
    assert caller.closed == [SHUTTING_DOWN]


async def test_stop_names_the_threads_that_are_still_alive() -> None:
    llm = GatedLLM(rude=True)
    pool = WatchedPool(1, scripted(llm=llm))
    pool.start()
    caller = Caller(pool.claim())  # type: ignore[arg-type]
    caller.write("hi")
    await asyncio.to_thread(llm.waiting.wait, TIMEOUT)
    alive = await pool.stop(0.05)
    assert alive[0] == "unit 0 llm"
    assert not [name for name in alive if "vad" in name or "stt" in name]
    llm.gate.set()
    assert await pool.stop() == []


async def test_units_have_six_threads_named_after_them(new_pool: Callable[..., WatchedPool]) -> None:
    pool = new_pool(1)
    unit: PipelineUnit = pool.units[0]
    names = [runner.thread.name for runner in unit.handlers]
    assert names == [f"unit 0 {stage}" for stage in ("vad", "stt", "notifier", "llm", "output", "tts")]
    assert {*names} <= {thread.name for thread in threading.enumerate()}
