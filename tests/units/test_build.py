"""Building a unit by hand, as the docstring of units.build shows it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.units.caller import TIMEOUT, loud, quiet, scripted
from units import (
    EngineSettings,
    EngineUnavailable,
    PipelineConfig,
    PipelineUnit,
    UnitState,
    build_pipeline,
    build_unit,
    load_engines,
    register,
)
from units.engines import registry
from units.engines.base import EngineError

SCRIPTED = EngineSettings("scripted")
CONFIG = PipelineConfig(vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED)


class Script:
    """The smallest transport: what a script would write."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.done = asyncio.Event()

    def send(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["type"] == "response.done":
            self.done.set()

    def close(self, reason: str) -> None:
        pass


async def test_a_unit_built_by_hand_answers_pcm_with_pcm() -> None:
    engines = load_engines(CONFIG)
    unit = build_unit(engines)
    unit.start()
    transport = Script()
    session = unit.open(transport)
    session.hear(np.concatenate([loud(1000), quiet(800)]))
    await asyncio.wait_for(transport.done.wait(), TIMEOUT)
    frame = unit.output_queue.pull(480)
    assert frame is not None
    assert frame.dtype == np.int16
    assert frame.shape == (480,)
    assert np.abs(frame).max() > 1_000
    session.close()
    unit.stop()
    assert await asyncio.to_thread(unit.join, asyncio.get_running_loop().time() + TIMEOUT) == []


async def test_a_pipeline_has_as_many_units_as_it_was_told() -> None:
    pipeline = build_pipeline(replace(CONFIG, num_pipelines=3))
    assert pipeline.pool.free == 0
    pipeline.start()
    assert pipeline.pool.free == 3
    assert {status.state for status in pipeline.pool.states()} == {UnitState.IDLE}
    assert await pipeline.stop() == []


async def test_the_names_that_people_look_for_are_there() -> None:
    unit = build_unit(scripted(), index=7)
    unit.start()
    assert (unit.index, unit.session, unit.service, unit.cancel_scope) == (7, None, None, None)
    assert not unit.should_listen
    session = unit.claim()
    assert unit.should_listen
    assert unit.service is session.service
    assert unit.cancel_scope is session.scope
    assert not unit.response_playing
    assert unit.input_queue is unit.handlers[0].inbox
    assert unit.text_prompt_queue is unit.handlers[3].inbox
    assert len(unit.handlers) == 6
    with pytest.raises(RuntimeError, match="unit 7 is taken"):
        unit.claim()
    session.close()
    assert not unit.should_listen
    unit.stop()
    assert await asyncio.to_thread(unit.join, asyncio.get_running_loop().time() + TIMEOUT) == []


def test_a_unit_copies_its_arguments_and_shares_its_engines() -> None:
    engines, config = scripted(), replace(CONFIG)
    units = [PipelineUnit(index, engines, config) for index in range(2)]
    assert units[0]._config == config
    assert units[0]._config is not config
    assert units[0]._config is not units[1]._config
    assert units[0]._config.llm is not units[1]._config.llm
    assert units[0]._engines is units[1]._engines


def test_progress_is_told_in_words() -> None:
    said: list[str] = []
    load_engines(CONFIG, said.append)
    assert said[0] == "loading voice activity: scripted"
    assert len(said) == 5


def test_there_need_not_be_a_model_of_the_end_of_turn() -> None:
    assert load_engines(CONFIG).turn is not None
    assert load_engines(replace(CONFIG, turn=EngineSettings("none"))).turn is None


class Broken:
    def __init__(self, settings: EngineSettings) -> None:
        pass

    def transcribe(self, samples: object, *, language: str = "") -> None:
        raise EngineError("out of memory")


def test_every_engine_has_worked_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[str] = []

    def noting(kind: str, method: str) -> None:
        engine = registry.load(kind, SCRIPTED)
        work = getattr(engine, method)

        def noted(*args: Any, **options: Any) -> Any:
            worked.append(kind)
            return work(*args, **options)

        monkeypatch.setattr(engine, method, noted)
        monkeypatch.setitem(registry._registered, (kind, "noting"), lambda _: engine)

    methods = {"vad": "open", "turn": "finished", "stt": "transcribe", "llm": "generate", "tts": "synthesize"}
    for kind, method in methods.items():
        noting(kind, method)
    load_engines(replace(CONFIG, **{kind: EngineSettings("noting") for kind in methods}))
    assert worked == [*methods]


def test_an_engine_that_does_not_work_is_told_of_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})  # other tests are not to find it
    register("stt", "broken", Broken)
    with pytest.raises(EngineUnavailable, match="'broken' does not work: out of memory"):
        load_engines(replace(CONFIG, stt=EngineSettings("broken")))


def test_an_unknown_engine_is_told_of_with_those_that_there_are() -> None:
    with pytest.raises(EngineUnavailable, match=r"no llm engine named .nope.*scripted"):
        load_engines(replace(CONFIG, llm=EngineSettings("nope")))
