"""Watching a session: what its client is sent, what is heard and said, and how long its engines take.

Stages time their engines with :func:`timed`; their runner delivers the :class:`Worked` to the session like
everything else, and the session tells its observers. Nothing here changes what a session does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from units.messages import Float32, Int16, Notice, Said

Stage = Literal["vad", "turn", "stt", "llm", "tts"]


@dataclass(frozen=True, slots=True)
class Worked(Notice):
    """An engine has done one piece of work, or stopped in the middle. Times as of ``time.monotonic()``.

    That of ``vad`` is to wait: from where the caller fell silent to the end of the turn.
    """

    stage: Stage
    began: float
    first: float | None
    """When the first of the result was there; None: nothing came."""
    ended: float
    amount: float = 0.0
    """Seconds of sound, heard or made; for a language model tokens written, if it says so."""
    outcome: Literal["done", "stopped", "failed"] = "done"
    """``stopped``: nobody wanted the rest."""
    purpose: str = ""
    """Of a recogniser's work: ``live``, ``settled``, ``final`` or ``recording``."""


class Observer:
    """Sees one session from its beginning to its end. Override what is of interest.

    Called on the event loop thread, in order; no method may block or raise.
    """

    def sent(self, event: dict[str, Any]) -> None:
        """A server event, as the client gets it. Not to be changed."""

    def worked(self, scope: str, work: Worked) -> None:
        """``scope`` is the id of the response that the work was for, or names the session."""

    def heard(self, samples: Float32) -> None:
        """Sound from the caller, as it arrives: float32 mono at 16 kHz. Not to be changed."""

    def played(self, samples: Int16, rate: int) -> None:
        """What the caller hears from now on, silence included: int16 mono, about 20 ms. Not to be changed."""

    def queued(self, item_id: str, samples: Int16, rate: int) -> None:
        """Instead of :meth:`played`: more of an item's sound, for a client that plays it itself."""

    def stopped(self, item_id: str, audio_end_ms: int) -> None:
        """Such a client plays no more of this item than that; without an item, no more of anything."""

    def said(self, said: Said) -> None:
        """Something that was said or done is certain now."""

    def closed(self, reason: str) -> None:
        """The session is over. Called once, last."""


class Watch:
    """Times one piece of work."""

    def __init__(self, stage: Stage, clock: Callable[[], float], purpose: str) -> None:
        self.amount = 0.0
        """See :attr:`Worked.amount`."""
        self._stage = stage
        self._purpose = purpose
        self._clock = clock
        self._began = clock()
        self._first: float | None = None

    def got(self) -> None:
        """A part of the result is there."""
        if self._first is None:
            self._first = self._clock()

    def read(self, outcome: Literal["done", "stopped", "failed"]) -> Worked:
        ended = self._clock()
        return Worked(self._stage, self._began, self._first, ended, self.amount, outcome, self._purpose)


@contextmanager
def timed(stage: Stage, purpose: str = "", clock: Callable[[], float] = time.monotonic) -> Iterator[Watch]:
    """Time the block, which is an engine at work, and tell whoever watches. Also when it is left early."""
    watch = Watch(stage, clock, purpose)
    outcome: Literal["done", "stopped", "failed"] = "stopped"
    try:
        yield watch
        outcome = "done"
    except Exception:
        outcome = "failed"
        raise
    finally:
        _report.get()(watch.read(outcome))


def waited(seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Tell whoever watches that a turn is over, ``seconds`` after the caller fell silent."""
    now = clock()
    _report.get()(Worked("vad", now - seconds, now, now, seconds))


def _to_nobody(_work: Worked) -> None: ...


_report: ContextVar[Callable[[Worked], None]] = ContextVar("report", default=_to_nobody)


@contextmanager
def reporting(report: Callable[[Worked], None]) -> Iterator[None]:
    """Within the block, and on this thread, :func:`timed` tells ``report``."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)
