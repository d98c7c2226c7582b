"""Lines of plain generators, without engines or sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import pytest

from units.engines.base import EngineError
from units.line import Line, Stage, StageDied
from units.messages import End, Envelope, Failed, Notice
from units.scope import CancelScope, current_scope


@dataclass(frozen=True, slots=True)
class Seen(Notice):
    body: object


def passing(bodies: Iterable[Any]) -> Iterator[Any]:
    yield from bodies


def noticing(bodies: Iterable[Any]) -> Iterator[Any]:
    for body in bodies:
        yield Seen(body)
        yield body


def flushing(bodies: Iterable[Any]) -> Iterator[Any]:
    yield sum(bodies)


def deaf(bodies: Iterable[Any]) -> Iterator[Any]:
    yield "done before it heard anything"


def failing(bodies: Iterable[Any]) -> Iterator[Any]:
    for body in bodies:
        if body == "boom":
            raise EngineError("the model is not well")
        if body == "bug":
            raise ZeroDivisionError
        if body == "die":
            raise SystemExit
        yield body


class Running:
    """A started line, and what comes out of it."""

    def __init__(self, *stages: Stage) -> None:
        self.delivered: SimpleQueue[Envelope | None] = SimpleQueue()
        named = [(f"{stage.__name__}", stage) for stage in stages]
        self.line = Line(named, self.delivered.put)
        self.line.start()

    def put(self, scope: CancelScope, *bodies: object) -> None:
        for body in (*bodies, End()):
            self.line.put(scope, body)

    def out(self) -> list[object]:
        """Bodies up to the next End."""
        bodies = []
        while not isinstance(body := self.next(), End):
            bodies.append(body)
        return bodies

    def next(self) -> object:
        envelope = self.delivered.get(timeout=10)
        return None if envelope is None else envelope.body

    def stop(self) -> list[str]:
        self.line.stop()
        return self.line.join(time.monotonic() + 10)


@pytest.fixture
def running() -> Iterator[Any]:
    lines: list[Running] = []

    def run(*stages: Stage) -> Running:
        lines.append(Running(*stages))
        return lines[-1]

    yield run
    for line in lines:
        assert line.stop() == []


def test_bodies_come_out_in_order_and_are_closed_by_one_end(running: Any) -> None:
    line = running(passing, passing)
    line.put(CancelScope("a"), 1, 2, 3)
    line.put(CancelScope("b"), 4)
    assert (line.out(), line.out()) == ([1, 2, 3], [4])
    assert line.delivered.empty()


def test_notices_go_straight_to_the_session(running: Any) -> None:
    line = running(noticing, flushing)
    line.put(CancelScope("a"), 1, 2)
    assert line.out() == [Seen(1), Seen(2), 3]


def test_every_envelope_bears_the_scope_of_its_work(running: Any) -> None:
    line, scopes = running(noticing), [CancelScope("a"), CancelScope("b")]
    for scope in scopes:
        line.put(scope, scope.name)
    envelopes = [line.delivered.get(timeout=10) for _ in range(6)]
    assert [envelope.scope.name for envelope in envelopes] == ["a"] * 3 + ["b"] * 3


def test_a_stage_that_stops_listening_ends_once(running: Any) -> None:
    line = running(deaf)
    line.put(CancelScope("a"), 1, 2, 3)
    line.put(CancelScope("b"))
    assert line.out() == line.out() == ["done before it heard anything"]


@pytest.mark.parametrize(
    ("bodies", "reason"),
    [
        (("boom",), "the model is not well"),
        ((1, "boom", 2), "the model is not well"),
        (("bug",), "internal error in the failing stage"),
    ],
)
def test_a_failed_scope_ends_once_and_the_next_one_works(
    running: Any, bodies: tuple[object, ...], reason: str
) -> None:
    line = running(failing, passing)
    line.put(CancelScope("a"), *bodies)
    line.put(CancelScope("b"), "fine")
    assert Failed("failing", reason) in line.out()
    assert line.out() == ["fine"]


def test_a_cancelled_scope_ends_once_and_gives_nothing(running: Any) -> None:
    line, scope = running(passing, noticing), CancelScope("a")
    scope.cancel()
    line.put(scope, 1, 2, 3)
    line.put(CancelScope("b"), "fine")
    assert line.out() == []
    assert line.out() == [Seen("fine"), "fine"]


def test_a_failure_after_cancelling_is_not_reported(running: Any) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def late(bodies: Iterable[Any]) -> Iterator[Any]:
        entered.set()
        go_on.wait()
        raise EngineError("too late")
        yield

    line, scope = running(late), CancelScope("a")
    line.put(scope, 1)
    assert entered.wait(10)
    scope.cancel()
    go_on.set()
    assert line.out() == []


def test_the_stage_is_closed_when_its_scope_is_cancelled(running: Any) -> None:
    closed, working = threading.Event(), threading.Event()

    def talkative(bodies: Iterable[Any]) -> Iterator[Any]:
        try:
            while True:
                working.set()
                yield "more"
        finally:
            closed.set()

    line, scope = running(talkative), CancelScope("a")
    line.put(scope, 1)
    assert working.wait(10)
    scope.cancel()
    assert closed.wait(10)
    line.out()


def test_a_stage_can_ask_to_be_woken_when_its_scope_is_cancelled(running: Any) -> None:
    waiting = threading.Event()

    def reading(bodies: Iterable[Any]) -> Iterator[Any]:
        closed = threading.Event()
        current_scope().on_cancel(closed.set)
        waiting.set()
        closed.wait()
        raise EngineError("the connection was closed")
        yield

    line, scope = running(reading), CancelScope("a")
    line.put(scope, 1)
    assert waiting.wait(10)
    scope.cancel()
    assert line.out() == []


def test_the_ambient_scope_is_that_of_the_work(running: Any) -> None:
    def asking(bodies: Iterable[Any]) -> Iterator[Any]:
        for _ in bodies:
            yield current_scope()

    line, scope = running(asking), CancelScope("a")
    line.put(scope, 1)
    assert line.out() == [scope]


def test_a_line_stops_after_what_is_queued(running: Any) -> None:
    line = running(passing, passing)
    line.put(CancelScope("a"), 1)
    assert line.stop() == []
    assert line.out() == [1]
    assert line.next() is None


@pytest.mark.parametrize(
    "stages", [(failing, passing, passing), (passing, failing, passing), (passing, failing)]
)
def test_a_stage_that_dies_says_so_and_takes_no_other_thread_with_it(stages: tuple[Stage, ...]) -> None:
    line = Running(*stages)
    line.put(CancelScope("a"), 1, "die")
    while not isinstance(line.next(), StageDied):
        pass
    assert line.stop() == []


def test_a_line_names_the_threads_that_do_not_end() -> None:
    go_on = threading.Event()

    def stuck(bodies: Iterable[Any]) -> Iterator[Any]:
        go_on.wait()
        yield from bodies

    line = Running(passing, stuck)
    line.put(CancelScope("a"), 1)
    line.line.stop()
    assert line.line.join(time.monotonic() + 0.05) == ["stuck"]
    go_on.set()
    assert line.line.join(time.monotonic() + 10) == []
