"""Whoever asks something of this server, and how many sessions they may have."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil

from aiohttp import web

from server.doors import Refusal

MINUTE = 60.0


class Quotas:
    """Counts sessions: those that are open, and those that began within the last minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._open: Counter[str] = Counter()
        self._recent: Counter[str] = Counter()
        self._begun: deque[tuple[float, str]] = deque()

    def begin(self, caller: Caller) -> Callable[[], None]:
        """Count a session of ``caller``; what is returned is called when it has ended. Raises Refusal."""
        who, now = caller.counted, self._now()
        while self._begun and self._begun[0][0] <= now - MINUTE:
            self._forget(self._begun.popleft()[1])
        if caller.sessions is not None and self._open[who] >= caller.sessions:
            message = f"This key may have {caller.sessions} sessions at a time. End one first."
            raise Refusal(429, "too_many_sessions", message)
        if caller.per_minute and self._recent[who] >= caller.per_minute:
            oldest = next(when for when, other in self._begun if other == who)
            wait = ceil(oldest + MINUTE - now)
            message = f"Only {caller.per_minute} sessions may begin in a minute. Try again in {wait} s."
            raise Refusal(429, "rate_limit_exceeded", message, retry_after=wait)
        self._begun.append((now, who))
        self._recent[who] += 1
        self._open[who] += 1
        ended = ExitStack()
        ended.callback(self._end, who)
        return ended.close

    def take_back(self, caller: Caller) -> None:
        """The latest session of ``caller`` never began: a server that is full counts against nobody."""
        latest = next(begun for begun in reversed(self._begun) if begun[1] == caller.counted)
        self._begun.remove(latest)
        self._forget(caller.counted)

    def _end(self, who: str) -> None:
        self._open[who] -= 1
        if not self._open[who]:
            del self._open[who]

    def _forget(self, who: str) -> None:
        self._recent[who] -= 1
        if not self._recent[who]:
            del self._recent[who]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as far as it matters."""

    owner: str = ""
    """SHA-256 of the key, whose calls are out of others' reach; "" where none is needed."""
    counted: str = ""
    """Whose sessions are counted together: the key's, or an address's."""
    sessions: int | None = None
    """Sessions at a time; None: any number."""
    per_minute: int = 0
    """Sessions that may begin in a minute; 0: any number."""
    quotas: Quotas = field(default_factory=Quotas, repr=False)

    def begin(self) -> Callable[[], None]:
        """Count a session; what is returned is called when it has ended. Raises Refusal."""
        return self.quotas.begin(self)

    def take_back(self) -> None:
        """The session that was counted last never began."""
        self.quotas.take_back(self)


_CALLER = web.RequestKey("caller", Caller)


def caller_of(request: web.Request) -> Caller:
    """Who was let in with ``request`` by :mod:`server.access`; anybody, where that does not stand guard."""
    return request.get(_CALLER) or Caller()


def let_in(request: web.Request, caller: Caller) -> None:
    """Note that ``request`` is ``caller``'s."""
    request[_CALLER] = caller
