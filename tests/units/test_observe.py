"""Watching a session: every event, how long each engine took, and the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.units.caller import Caller, WatchedUnit, loud, quiet, scripted
from tests.units.conftest import UnitFactory
from tests.units.odd_engines import FailingLLM, GatedLLM
from units import Observer, Worked
from units.engines.scripted import ANSWER, HEARD
from units.messages import Float32, Int16, Said
from units.observe import reporting, timed
from units.realtime.errors import ProtocolError


class Watching(Observer):
    def __init__(self, unit: WatchedUnit) -> None:
        self._unit = unit
        self.events: list[dict[str, Any]] = []
        self.work: list[tuple[str, Worked]] = []
        self.reasons: list[str] = []

    def sent(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def worked(self, scope: str, work: Worked) -> None:
        self.work.append((scope, work))

    def closed(self, reason: str) -> None:
        self.reasons.append(reason)

    async def worked_on(self, stage: str) -> tuple[str, Worked]:
        await self._unit.eventually(lambda: any(work.stage == stage for _, work in self.work))
        return next(pair for pair in self.work if pair[1].stage == stage)


def watched(unit: WatchedUnit) -> tuple[Caller, Watching]:
    watching = Watching(unit)
    return Caller(unit, observers=[watching]), watching


async def test_an_observer_sees_every_event_and_the_end(new_unit: UnitFactory) -> None:
    caller, watching = watched(new_unit())
    caller.write("[[echo:Yes.]]")
    await caller.got("response.done")
    assert watching.events == caller.events
    await caller.hang_up()
    assert watching.reasons == ["hung up"]


async def test_it_is_told_how_long_each_engine_took_and_for_which_response(new_unit: UnitFactory) -> None:
    caller, watching = watched(new_unit())
    eager = {"type": "semantic_vad", "eagerness": "high"}
    caller.configure(audio={"input": {"turn_detection": eager}})
    caller.say(loud(1000), quiet(2000))
    done = (await caller.got("response.done"))["response"]
    for stage in ("vad", "turn", "stt", "llm", "tts"):
        scope, work = await watching.worked_on(stage)
        assert scope == (done["id"] if stage in ("llm", "tts") else caller.session.name)
        assert work.outcome == "done"
        assert work.began <= (work.first or work.ended) <= work.ended
    stt, llm, tts = [(await watching.worked_on(stage))[1] for stage in ("stt", "llm", "tts")]
    assert 0.2 < (await watching.worked_on("vad"))[1].amount < 0.6
    assert 1.0 < stt.amount < 1.6
    assert stt.purpose in ("live", "final")
    assert llm.amount == done["usage"]["output_tokens"]
    assert tts.amount > 0.5
    assert None not in (stt.first, llm.first, tts.first)
    await caller.hang_up()


async def test_work_that_was_stopped_or_failed_is_told_as_such(new_unit: UnitFactory) -> None:
    caller, watching = watched(new_unit(scripted(llm=GatedLLM(before="Well, "))))
    caller.write("hello")
    await caller.got("response.output_audio_transcript.delta")
    caller.do("response.cancel")
    _, stopped = await watching.worked_on("llm")
    assert (stopped.outcome, stopped.first is not None) == ("stopped", True)
    await caller.hang_up()

    caller, watching = watched(new_unit(scripted(llm=FailingLLM())))
    caller.write("fail")
    await caller.got("response.done")
    _, failed = await watching.worked_on("llm")
    assert failed.outcome == "failed"
    await caller.hang_up()


class Hearing(Observer):
    def __init__(self) -> None:
        self.sound: list[Any] = []
        self.words: list[Said] = []
        self.spoken = 0

    def heard(self, samples: Float32) -> None:
        self.sound.append(samples)

    def played(self, samples: Int16, rate: int) -> None:
        assert (len(samples), rate) == (480, 24_000)
        self.spoken += np.count_nonzero(samples)

    def said(self, said: Said) -> None:
        self.words.append(said)


async def test_it_hears_both_sides_and_is_told_what_was_said(new_unit: UnitFactory) -> None:
    hearing = Hearing()
    caller = Caller(new_unit(), observers=[hearing])
    caller.say(loud(1000), quiet(1000))
    await caller.got("response.done")
    assert [len(each) for each in hearing.sound] == [16_000, 16_000]
    assert hearing.spoken == 0
    caller.listen(1000)
    assert 23_000 < hearing.spoken < 24_000
    await caller.hang_up()
    user, assistant = hearing.words
    assert (user.role, user.text) == ("user", HEARD)
    assert ANSWER.startswith(assistant.text)
    assert 10 < len(assistant.text) < 20
    assert assistant.interrupted


async def test_nothing_is_tapped_when_nobody_watches(new_unit: UnitFactory) -> None:
    unit = new_unit()
    caller = Caller(unit)
    assert unit.output_queue.on_pulled is None
    await caller.hang_up()
    caller, _ = watched(unit)
    assert unit.output_queue.on_pulled is not None
    await caller.hang_up()
    assert unit.output_queue.on_pulled is None


async def test_wrong_settings_end_what_is_watched(new_unit: UnitFactory) -> None:
    unit = new_unit()
    watching = Watching(unit)
    with pytest.raises(ProtocolError):
        unit.open(_Nobody(), [{"type": "nonsense"}], [watching])
    assert watching.reasons == ["wrong settings"]
    await unit.drained()


class _Nobody:
    def send(self, event: dict[str, Any]) -> None: ...

    def close(self, reason: str) -> None: ...


def test_times_are_told_where_somebody_asked_and_nowhere_else() -> None:
    told: list[Worked] = []
    ticks = iter([1.0, 2.0, 4.0])
    with reporting(told.append), timed("tts", clock=lambda: next(ticks)) as watch:
        watch.got()
        watch.got()
    with timed("tts"):
        pass
    assert told == [Worked("tts", 1.0, 2.0, 4.0)]
