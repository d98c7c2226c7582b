"""Stages in a row, each on a thread of its own. The only code that touches queues and threads.

A stage is a generator function over the bodies of one scope. The runner starts it afresh for every
scope, hands it that scope's bodies, sends on what it yields, and closes the scope's stream with one
End, whether the stage finished, failed or was cancelled. The thread blocks on its queue and on
nothing else; ``None`` in the queue stops it, and passes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from units.engines.base import EngineError
from units.messages import End, Envelope, Failed, Notice
from units.observe import reporting
from units.scope import CancelScope, entered

logger = logging.getLogger(__name__)

Stage = Callable[[Iterable[Any]], Iterator[Any]]
"""Bodies of one scope in, bodies out. State is local; what must happen at the end stands after the loop."""

Send = Callable[[Envelope | None], None]

STOP = None


class Cancelled(BaseException):
    """Raised inside a stage, at its next input, once its scope is cancelled."""


@dataclass(frozen=True, slots=True)
class StageDied(Notice):
    """The thread of a stage is gone: nothing will come out of this line any more."""

    stage: str


class Delivery:
    """The one ordered way from the stages to the session: any thread puts, the loop thread receives."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Callable[[Envelope], None]) -> None:
        self._loop = loop
        self._receive = receive

    def put(self, envelope: Envelope | None) -> None:
        """Hand over from a stage thread. After the loop has closed there is nobody to tell."""
        if envelope is STOP:
            return
        try:
            self._loop.call_soon_threadsafe(self._receive, envelope)
        except RuntimeError:
            logger.debug("the event loop is closed; %s is dropped", type(envelope.body).__name__)


class StageRunner:
    """Runs one stage on one thread."""

    def __init__(
        self, name: str, stage: Stage, forward: Send, deliver: Send, *, thread_name: str = ""
    ) -> None:
        self.name = name
        self.inbox: SimpleQueue[Envelope | None] = SimpleQueue()
        self._stage = stage
        self._forward = forward
        self._deliver = deliver
        self._ended = False
        self._stopped = False
        self.thread = threading.Thread(target=self._run, name=thread_name or name, daemon=True)

    def _run(self) -> None:
        scope = _NO_WORK
        try:
            while not self._stopped and (head := self.inbox.get()) is not STOP:
                scope = head.scope
                self._run_scope(head)
        except BaseException:  # a thread must not vanish unnoticed: the pool replaces the unit
            with entered(scope):
                logger.critical("the thread of stage %s died", self.name, exc_info=True)
            self._deliver(Envelope(scope, StageDied(self.name)))
        finally:
            self._forward(STOP)

    def _run_scope(self, head: Envelope) -> None:
        scope = head.scope
        self._note_end(head)
        with entered(scope), reporting(lambda work: self._deliver(Envelope(scope, work))):
            try:
                with closing(self._stage(self._bodies(head))) as outputs:  # type: ignore[type-var]
                    for body in outputs:
                        if scope.cancelled:
                            break
                        send = self._deliver if isinstance(body, Notice) else self._forward
                        send(Envelope(scope, body))
            except Cancelled:
                pass
            except Exception as error:
                self._report(scope, error)
            while not self._ended:
                self._note_end(self.inbox.get())
            self._forward(Envelope(scope, End()))

    def _report(self, scope: CancelScope, error: Exception) -> None:
        if scope.cancelled:
            logger.debug("stage %s raised in cancelled %r: %s", self.name, scope, error)
            return
        if isinstance(error, EngineError):
            logger.warning("stage %s failed in %r: %s", self.name, scope, error)
            reason = str(error)
        else:
            logger.exception("stage %s failed in %r", self.name, scope)
            reason = f"internal error in the {self.name} stage"
        self._deliver(Envelope(scope, Failed(self.name, reason)))

    def _bodies(self, head: Envelope) -> Iterator[object]:
        envelope: Envelope | None = head
        while True:
            self._note_end(envelope)
            if head.scope.cancelled or envelope is STOP:
                raise Cancelled
            assert envelope.scope is head.scope, "streams of two scopes are interleaved"
            if self._ended:
                return
            yield envelope.body
            envelope = self.inbox.get()

    def _note_end(self, envelope: Envelope | None) -> None:
        """A stop in the middle of a scope comes from a stage that died in front of this one."""
        self._stopped = self._stopped or envelope is STOP
        self._ended = envelope is STOP or isinstance(envelope.body, End)


class Line:
    """Stages in a row; what leaves the last one is delivered to the session.

    ``stages`` are (name, stage) pairs; ``deliver`` is called on stage threads, with None at the end.
    """

    def __init__(self, stages: Sequence[tuple[str, Stage]], deliver: Send, *, prefix: str = "") -> None:
        self.runners: list[StageRunner] = []
        forward = deliver
        for name, stage in reversed(stages):
            runner = StageRunner(name, stage, forward, deliver, thread_name=prefix + name)
            self.runners.insert(0, runner)
            forward = runner.inbox.put
        self.inbox = self.runners[0].inbox

    def start(self) -> None:
        for runner in self.runners:
            runner.thread.start()

    def put(self, scope: CancelScope, body: object) -> None:
        self.inbox.put(Envelope(scope, body))

    def stop(self) -> None:
        """Let the stages end once they have done what is queued. Does not wait."""
        self.inbox.put(STOP)

    def join(self, deadline: float) -> list[str]:
        """Wait for the threads until ``time.monotonic()`` is ``deadline``; names of those still alive."""
        for runner in self.runners:
            if runner.thread.ident is not None:
                runner.thread.join(max(0.0, deadline - time.monotonic()))
        return [runner.thread.name for runner in self.runners if runner.thread.is_alive()]


_NO_WORK = CancelScope("no work")
