"""How quiet the machine is: work of known size, and naps of known length.

On a machine that does nothing else, both vary by a few per cent. Where they do not, the other figures
tell as much about the neighbours as about the server.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Figure

NAP = 0.001


@dataclass(frozen=True, slots=True)
class Noise:
    """One look at the machine."""

    when: str
    load: float
    """Load average over one minute; -1 where there is none."""
    loop: Figure
    """The same piece of work, again and again, in ms."""
    late: Figure
    """How late naps of 1 ms ended, in ms."""

    def line(self) -> str:
        """For the table."""
        loop, late = self.loop, self.late
        return (
            f"{self.when:<24}  loop {loop.median:5.2f} / {loop.p95:5.2f} ms   "
            f"nap late by {late.median:5.2f} / {late.p95:5.2f} ms   load {self.load:.2f}"
        )

    def json(self) -> dict[str, Any]:
        return {"when": self.when, "load": self.load, "loop": self.loop.json(), "late": self.late.json()}


def look(when: str, times: int = 100) -> Noise:
    """Take half a second to see how the machine is. Blocks."""
    loop = Figure("loop", "ms", tuple(1e3 * _work() for _ in range(times)))
    late = Figure("late", "ms", tuple(1e3 * _nap() for _ in range(times)))
    return Noise(when, os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0, loop, late)


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
