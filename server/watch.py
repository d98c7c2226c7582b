"""Who watches the sessions of this server: told of each before it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from units.observe import Observer


@dataclass(frozen=True, slots=True)
class Begun:
    """A session that is about to begin."""

    id: str
    """``rtc_...``, as the caller knows it, or ``ws_...`` of a WebSocket client."""
    door: Literal["webrtc", "websocket"]
    unit: int
    """Index of the unit that serves it."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """The client's ``traceparent`` and ``tracestate``, as it sent them; see :func:`trace_of`."""


Watcher = Callable[[Begun], Observer | None]
"""None: of no interest."""


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of W3C Trace Context among ``headers``. https://www.w3.org/TR/trace-context/"""
    return {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}


def watched_by(watchers: Sequence[Watcher], begun: Begun) -> tuple[Observer, ...]:
    """Those who watch this session. What a watcher raises is raised; for the others it is over then."""
    observers: list[Observer] = []
    try:
        for watcher in watchers:
            if (observer := watcher(begun)) is not None:
                observers.append(observer)
    except BaseException:
        for observer in observers:
            observer.closed("internal error")
        raise
    return tuple(observers)
