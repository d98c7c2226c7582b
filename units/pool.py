"""UnitPool: claim the first free unit; get it back once it has drained; say so when it does not.

Everything happens on the event loop thread. An idle pool keeps no timer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from units.session import Session
from units.unit import PipelineUnit

logger = logging.getLogger(__name__)


class PoolFull(Exception):
    """Every unit is taken, or the pool is stopping."""


class UnitState(Enum):
    IDLE = "idle"
    ACTIVE = "active"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    """Released, and still not drained: an engine call hangs. Comes back by itself when it returns."""


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """What ``/v1/pool`` shows of one unit. ``since`` is a Unix timestamp."""

    index: int
    state: UnitState
    since: float
    session: str | None


class _Slot:
    """A place in the pool: the unit in it, and what is known of its state."""

    def __init__(self, unit: PipelineUnit) -> None:
        self.unit = unit
        self.state = UnitState.IDLE
        self.since = time.time()
        self.timer: asyncio.TimerHandle | None = None

    def move(self, state: UnitState) -> None:
        level = logging.WARNING if state is UnitState.QUARANTINED else logging.DEBUG
        logger.log(level, "unit %d: %s -> %s", self.unit.index, self.state.value, state.value)
        self.state, self.since = state, time.time()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class UnitPool:
    """``size`` units made by ``build(index)``. ``start`` and everything after it need a running loop."""

    def __init__(
        self, size: int, build: Callable[[int], PipelineUnit], *, quarantine_after: float = 5.0
    ) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one unit, not {size}")
        self._build = build
        self._quarantine_after = quarantine_after
        self._slots = [_Slot(build(index)) for index in range(size)]
        self._retired: list[PipelineUnit] = []  # replaced, their other threads perhaps still busy
        self._open = False
        self._released_one = asyncio.Event()

    @property
    def units(self) -> list[PipelineUnit]:
        return [slot.unit for slot in self._slots]

    @property
    def free(self) -> int:
        """Units that can be claimed now."""
        return sum(slot.state is UnitState.IDLE for slot in self._slots) if self._open else 0

    def states(self) -> list[UnitStatus]:
        return [_status(slot) for slot in self._slots]

    def start(self) -> None:
        for slot in self._slots:
            self._start(slot)
        self._open = True

    def claim(self) -> PipelineUnit:
        """The first free unit, taken: its ``session`` is there, waiting for :meth:`PipelineUnit.open`.

        Whoever claims closes the session in the end, whether a client was connected or not.
        Raises PoolFull.
        """
        for slot in self._slots:
            if self._open and slot.state is UnitState.IDLE:
                slot.unit.claim()
                slot.move(UnitState.ACTIVE)
                return slot.unit
        raise PoolFull("all units are in use" if self._open else "the server is stopping")

    @property
    def sessions(self) -> list[Session]:
        """Those that are open."""
        sessions = (unit.session for unit in self.units)
        return [session for session in sessions if session is not None and not session.closed]

    def wind_down(self) -> int:
        """Refuse claims, and have each session end once nothing goes on in it; how many have not ended."""
        self._open = False
        for session in self.sessions:
            session.stop()
        return len(self.sessions)

    async def wait_unused(self, grace_s: float) -> None:
        """Wait until no session is open, ``grace_s`` seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self.sessions:
                    self._released_one.clear()
                    await self._released_one.wait()

    async def stop(self, deadline_s: float = 5.0) -> list[str]:
        """Refuse claims, close sessions, stop the stages.

        Returns the names of the stage threads still alive after ``deadline_s`` seconds.
        """
        self._open = False
        units = [*self.units, *self._retired]
        for unit in units:
            unit.stop()
        for slot in self._slots:
            if slot.timer is not None:
                slot.timer.cancel()
        deadline = time.monotonic() + deadline_s
        alive = await asyncio.to_thread(lambda: [name for unit in units for name in unit.join(deadline)])
        if alive:
            logger.warning("still running after %.1f s: %s", deadline_s, ", ".join(alive))
        return alive

    def _start(self, slot: _Slot) -> None:
        unit = slot.unit
        unit.on_released = lambda _: self._released(slot)
        unit.on_idle = lambda _: self._drained(slot)
        unit.on_died = lambda _: self._replace(slot, unit)
        unit.start()

    def _released(self, slot: _Slot) -> None:
        self._released_one.set()
        slot.move(UnitState.DRAINING)
        loop = asyncio.get_running_loop()
        slot.timer = loop.call_later(self._quarantine_after, slot.move, UnitState.QUARANTINED)

    def _drained(self, slot: _Slot) -> None:
        slot.move(UnitState.IDLE)

    def _replace(self, slot: _Slot, dead: PipelineUnit) -> None:
        if slot.unit is not dead:
            return
        dead.on_released = dead.on_idle = dead.on_died = _ignore
        dead.stop()
        self._retired = [unit for unit in self._retired if unit.join(0)] + [dead]
        slot.unit = self._build(dead.index)
        slot.move(UnitState.IDLE)
        if self._open:
            self._start(slot)


def _status(slot: _Slot) -> UnitStatus:
    session: Session | None = slot.unit.session
    return UnitStatus(slot.unit.index, slot.state, slot.since, session.name if session else None)


def _ignore(_: object) -> None:
    pass
