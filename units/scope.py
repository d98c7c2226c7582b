"""CancelScope: a one-way latch owned by one piece of work.

A scope is cancelled once and stays so; a child is cancelled with its parent. Everything that travels
a line carries the scope it belongs to, so "is this stale?" has one spelling. Scopes know nothing of
queues, threads or the session that owns them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

logger = logging.getLogger(__name__)


class CancelScope:
    """A cancellable piece of work: a session, one of its responses, one utterance.

    ``cancel()`` is called by the owner (for sessions and responses that is the event loop thread);
    ``cancelled`` may be read from any thread.
    """

    __slots__ = ("_callbacks", "_cancelled", "_lock", "ids", "name", "parent")

    def __init__(
        self, name: str, parent: CancelScope | None = None, ids: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        self.name = name
        self.parent = parent
        self.ids: dict[str, object] = {**(parent.ids if parent else {}), **ids}
        """What the work is for, such as ``call`` and ``turn``, for log lines. A child has its parent's."""
        self._cancelled = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        if parent is not None:
            parent.on_cancel(self.cancel)

    @property
    def cancelled(self) -> bool:
        """True once this scope or one of its ancestors has been cancelled."""
        return self._cancelled

    def cancel(self) -> None:
        """Latch the scope, then run what was registered with :meth:`on_cancel`. Idempotent."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        if self.parent is not None:
            self.parent.forget(self.cancel)
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("on_cancel callback of %r failed", self)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Run ``callback`` when the scope is cancelled, or at once if it already is.

        It runs on the canceller's thread and must not block: close a socket, set an event.
        """
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def forget(self, callback: Callable[[], object]) -> None:
        """Undo :meth:`on_cancel`; unknown callbacks are ignored."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def __repr__(self) -> str:
        return f"<CancelScope {self.name}{' cancelled' if self.cancelled else ''}>"


_current: ContextVar[CancelScope | None] = ContextVar("current_scope", default=None)


def current_scope() -> CancelScope:
    """The scope of the work that the calling stage thread, or this callback or task of the loop, is doing.

    An engine that blocks in a network read registers ``current_scope().on_cancel(stream.close)``.
    Outside a line (in a plain test, in a script) this is a fresh scope that nobody cancels.
    """
    return _current.get() or CancelScope("no scope")


@contextmanager
def entered(scope: CancelScope) -> Iterator[CancelScope]:
    """Make ``scope`` the ambient one of this thread or task for the duration of the block."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)
