"""How quiet the machine is: work of known size, naps of known length, and what other processes take.

On a machine that does nothing else, work and naps vary by a few per cent and nobody else takes anything.
Where that is not so, the figures tell as much about the neighbours as about the server.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure

NAP = 0.001
_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class Noise:
    """One look at the machine."""

    when: str
    others: float
    """Cores that other processes took since the last look (their time and the hypervisor's); 0 if unknown."""
    loop: Figure
    """The same piece of work, again and again, in ms."""
    late: Figure
    """How late naps of 1 ms ended, in ms."""

    def line(self) -> str:
        """For the table."""
        loop, late = (f"{each.median:5.2f} / {each.p95:5.2f} ms" for each in (self.loop, self.late))
        return f"{self.when:<21}  others {self.others:4.2f} cores   loop {loop}   nap late by {late}"

    def json(self) -> dict[str, Any]:
        return {"when": self.when, "others": self.others, "loop": self.loop.json(), "late": self.late.json()}


class Watch:
    """Looks at the machine now and then."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), _others_s()

    def look(self, when: str, times: int = 100) -> Noise:
        """Take half a second to see how the machine is. Blocks."""
        loop = Figure("loop", "ms", tuple(1e3 * _work() for _ in range(times)))
        late = Figure("late", "ms", tuple(1e3 * _nap() for _ in range(times)))
        at, used = time.monotonic(), _others_s()
        others = max(0.0, used - self._used) / (at - self._at)
        self._at, self._used = at, used
        return Noise(when, others, loop, late)


def _others_s() -> float:
    """CPU seconds since the start of the machine that were not ours nor those of children that have ended."""
    if not _STAT.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, _STAT.read_text().split()[1:9])
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def _work() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(50_000):
        total += number
    return time.perf_counter() - began


def _nap() -> float:
    began = time.perf_counter()
    time.sleep(NAP)
    return time.perf_counter() - began - NAP
