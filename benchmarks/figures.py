"""What a benchmark found out, and how that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any


class CannotRun(Exception):
    """A benchmark cannot be run here. ``str(error)`` is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: something that was measured, once or many times."""

    name: str
    unit: str
    values: tuple[float, ...]
    target: float | None = None
    """At most this."""

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def p95(self) -> float:
        """The 95th percentile; of fewer than 20 values, the largest."""
        return quantiles(self.values, n=20)[-1] if len(self.values) >= 20 else max(self.values)

    @property
    def verdict(self) -> str:
        """Whether the target was met, by the median and by the 95th percentile."""
        if self.target is None:
            return ""
        if self.median > self.target:
            return "OVER"
        return "pass" if self.p95 <= self.target else "p95 over"

    def json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "name": self.name,
            "unit": self.unit,
            "n": len(self.values),
            "median": self.median,
            "p95": self.p95,
            "target": self.target,
            "verdict": self.verdict,
            "values": list(self.values),
        }


_HEAD = ("", "n", "median", "p95", "unit", "target", "")


def table(figures: Iterable[Figure]) -> str:
    """The figures as lines of text."""
    rows = [_HEAD, *map(_row, figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _row(figure: Figure) -> tuple[str, ...]:
    target = "" if figure.target is None else f"<= {_number(figure.target)}"
    n, middle, most = len(figure.values), _number(figure.median), _number(figure.p95)
    return (figure.name, str(n), middle, most if n > 1 else "", figure.unit, target, figure.verdict)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    left = (0, 4, 6)
    cells = (
        cell.ljust(width) if column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
