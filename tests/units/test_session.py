"""The session driver: what it does around the pure service."""

from __future__ import annotations

import asyncio
import base64
import logging
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from tests.units.caller import Caller, Json, loud, quiet, said, scripted
from tests.units.conftest import UnitFactory
from tests.units.odd_engines import RememberingLLM
from units import EngineError, PipelineConfig
from units.messages import Finish, Generate, Token, ToolCall, ToolResult
from units.realtime.context import text_tokens, tokens
from units.resample import EarResampler
from units.session import SHUTTING_DOWN


class BrokenVad:
    def open(self) -> BrokenVad:
        return self

    def probability(self, chunk: object) -> float:
        raise EngineError("the detector is gone")

    def reset(self) -> None:
        pass


class StrictLLM:
    """Calls a function, then tells of its result. Refuses a prompt that is longer than it can read."""

    context_tokens = 400

    def __init__(self) -> None:
        self.requests: list[Generate] = []

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        self.requests.append(request)
        if tokens((*request.history, *request.tools)) + text_tokens(request.instructions) > 400:
            raise EngineError("the prompt is too long")
        if isinstance(request.history[-1], ToolResult):
            yield Token("It rains.")
        else:
            yield ToolCall(f"call_{len(self.requests)}", "weather", '{"city": "Oslo"}')
        yield Finish()


class Connecting(Caller):
    """A client that is told later what it is sent."""

    connected = False


class Other:
    """A client that joins a session."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.closed: list[str] = []
        self.send = self.events.append
        self.close = self.closed.append


async def test_a_session_begins_with_session_created(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(config=PipelineConfig(model="parrot", voice="ada", instructions="Be kind.")))
    session = caller.events[0]["session"]
    assert caller.types == ["session.created"]
    assert (session["model"], session["audio"]["output"]["voice"]) == ("parrot", "ada")
    assert session["instructions"] == "Be kind."
    await caller.hang_up()


async def test_the_voice_is_the_engines_first_one_unless_it_is_chosen(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    assert caller.events[0]["session"]["audio"]["output"]["voice"] == "tone"
    await caller.hang_up()


async def test_a_session_is_over_at_its_time(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(config=PipelineConfig(session_seconds=0)))
    await caller.unit.eventually(lambda: caller.closed)
    assert caller.closed == ["session expired"]
    assert caller.errors == [("session_expired", None)]
    await caller.unit.drained()


async def test_silence_does_not_keep_a_session(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(config=PipelineConfig(idle_timeout=600)))
    silence = base64.b64encode(bytes(4800)).decode()
    caller.session._quiet_since -= 599
    caller.do("session.update", session={"type": "realtime"})
    caller.session._on_timer()
    caller.session._quiet_since -= 601
    caller.do("input_audio_buffer.append", audio=silence)
    caller.say(quiet(100))
    assert caller.closed == []
    caller.session._on_timer()
    assert caller.closed == ["session expired"]
    assert caller.errors == [("session_expired", None)]
    await caller.unit.drained()


async def test_a_session_in_which_something_is_said_is_kept(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(config=PipelineConfig(idle_timeout=600)))
    caller.say(loud(500))
    await caller.got("input_audio_buffer.speech_started")
    caller.session._quiet_since -= 10_000
    caller.session._on_timer()
    assert caller.closed == []
    await caller.hang_up()


async def test_a_session_in_which_nothing_goes_on_ends_as_soon_as_the_server_is_to_stop(
    new_unit: UnitFactory,
) -> None:
    caller = Caller(new_unit())
    caller.session.stop()
    assert caller.errors == [("server_shutting_down", None)]
    assert caller.closed == [SHUTTING_DOWN]
    await caller.unit.drained()


async def test_an_answer_is_heard_to_its_end_before_the_session_ends(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.write("[[echo:Wait for this.]]")
    caller.session.stop()
    await caller.got("response.done")
    caller.session._end_if_over()
    assert caller.closed == []
    heard = caller.listen(5_000)
    assert len(heard) == pytest.approx(len("Wait for this.") * 0.06 * 24_000, rel=0.01)
    assert caller.closed == []
    await caller.unit.eventually(lambda: caller.closed)
    assert caller.types.index("error") < caller.types.index("output_audio_buffer.stopped")
    assert caller.closed == [SHUTTING_DOWN]
    await caller.unit.drained()


async def test_a_turn_that_is_being_said_is_answered_before_the_session_ends(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.say(loud(500))
    await caller.got("input_audio_buffer.speech_started")
    caller.session.stop()
    caller.say(quiet(1000))
    await caller.got("response.done")
    caller.listen(5_000)
    await caller.unit.eventually(lambda: caller.closed)
    await caller.unit.drained()


async def test_a_function_that_runs_is_waited_for_and_its_result_answered(new_unit: UnitFactory) -> None:
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    caller = Caller(new_unit(), {"type": "realtime", "output_modalities": ["text"], "tools": [tool]})
    caller.write("How is the weather?")
    await caller.got("response.done")
    caller.session.stop()
    caller.session._end_if_over()
    assert caller.closed == []
    (call,) = caller.responses[0]["output"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sun"}
    caller.do("conversation.item.create", item=output)
    caller.do("response.create")
    await caller.unit.eventually(lambda: caller.closed)
    assert said(caller.responses[1]) == "The tool said: Sun."
    await caller.unit.drained()


async def test_silence_that_is_heard_does_not_put_off_the_end(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "Sun"}
    caller.do("conversation.item.create", item=call)
    caller.session.stop()
    caller.do("conversation.item.create", item=output)
    ending = caller.session._ending
    assert ending is not None
    caller.do("input_audio_buffer.append", audio=base64.b64encode(bytes(960)).decode())
    assert caller.session._ending is ending
    caller.do("conversation.item.create", item=call | {"call_id": "call_2"})
    assert ending.cancelled()
    caller.do("conversation.item.create", item=output | {"call_id": "call_2"})
    await caller.unit.eventually(lambda: caller.closed)
    assert caller.closed == [SHUTTING_DOWN]
    await caller.unit.drained()


async def test_a_client_that_is_still_connecting_is_told_first(new_unit: UnitFactory) -> None:
    caller = Connecting(new_unit())
    caller.session.stop()
    assert caller.closed == []
    caller.connected = True
    caller.configure()
    await caller.unit.eventually(lambda: caller.closed)
    assert caller.types == ["session.created", "error", "session.updated"]
    await caller.unit.drained()


async def test_a_client_that_connects_while_the_server_stops_and_does_nothing_is_let_go(
    new_unit: UnitFactory,
) -> None:
    caller = Connecting(new_unit())
    caller.session.stop()
    caller.connected = True
    caller.session.arrived()
    await caller.unit.eventually(lambda: caller.closed)
    assert caller.closed == [SHUTTING_DOWN]
    await caller.unit.drained()


async def test_every_client_of_a_session_is_told_that_the_server_stops(new_unit: UnitFactory) -> None:
    caller, other = Caller(new_unit()), Other()
    caller.session.join(other)
    caller.session.stop()
    assert [event["type"] for event in other.events] == ["session.created", "error"]
    assert other.closed == [SHUTTING_DOWN]
    await caller.unit.drained()


async def test_a_fault_of_ours_ends_the_session_and_not_the_unit(
    new_unit: UnitFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unit = new_unit()
    caller = Caller(unit)
    monkeypatch.setattr(caller.session.service, "handle", lambda message: 1 / 0)
    caller.do("response.create")
    assert caller.closed == ["internal error"]
    assert "ZeroDivisionError" in caplog.text
    await unit.drained()
    again = Caller(unit)
    again.write("hi")
    await again.got("response.done")
    await again.hang_up()


async def test_a_detector_that_fails_ends_the_session_and_not_the_unit(new_unit: UnitFactory) -> None:
    unit = new_unit(scripted(vad=BrokenVad()))
    caller = Caller(unit)
    caller.say(loud(100))
    await unit.eventually(lambda: caller.closed)
    assert caller.errors == [("server_error", None)]
    await unit.drained()
    assert Caller(unit).types == ["session.created"]


async def test_a_closed_session_does_nothing_more(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.session.close()
    caller.session.close()
    caller.write("hi")
    caller.say(loud(1000))
    await caller.unit.drained()
    assert caller.types == ["session.created"]
    assert caller.closed == ["hung up"]


async def test_a_claimed_unit_without_a_client_is_given_back(new_unit: UnitFactory) -> None:
    unit = new_unit()
    unit.claim().close()
    await unit.drained()
    assert not unit.outstanding


async def test_the_next_session_knows_nothing_of_the_last(new_unit: UnitFactory) -> None:
    llm = RememberingLLM()
    unit = new_unit(scripted(llm=llm))
    for text in ("first", "second"):
        caller = Caller(unit)
        caller.write(text)
        await caller.got("response.done")
        await caller.hang_up()
    assert [[getattr(entry, "text", "") for entry in each.history] for each in llm.requests] == [
        ["first"],
        ["second"],
    ]


async def test_two_hundred_turns_with_tools_ask_no_more_of_a_model_than_it_can_read(
    new_unit: UnitFactory,
) -> None:
    llm = StrictLLM()
    unit = new_unit(scripted(llm=llm), PipelineConfig(instructions="Be kind."))
    tools = [{"type": "function", "name": "weather"}]
    caller = Caller(unit, {"type": "realtime", "tools": tools, "output_modalities": ["text"]})
    for turn in range(200):
        caller.events.clear()
        caller.write(f"What is the weather like on day {turn}?")
        await caller.got("response.done")
        (call,) = caller.responses[0]["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        caller.do("conversation.item.create", item=output)
        caller.do("response.create")
        await caller.got("response.done", 2)
        assert said(caller.responses[1]) == "It rains."
    assert {request.instructions for request in llm.requests} == {"Be kind."}
    for request in llm.requests:
        calls = [entry.call_id for entry in request.history if isinstance(entry, ToolCall)]
        assert calls == [entry.call_id for entry in request.history if isinstance(entry, ToolResult)]
    await caller.hang_up()


async def test_silence_leaves_nothing_behind(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())

    async def be_quiet(minutes: int) -> int:
        """Bytes that are in use afterwards."""
        for ms in [*[10_000] * (6 * minutes), 20]:
            caller.say(quiet(ms))
            while caller.session.unheard:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = await be_quiet(1)
    assert await be_quiet(10) - before < 20_000
    tracemalloc.stop()
    assert caller.types == ["session.created"]
    await caller.hang_up()


async def test_what_callers_say_is_not_in_the_log(
    new_unit: UnitFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caller = Caller(new_unit())
    caller.write("[[echo:my secret]]")
    await caller.got("response.done")
    caller.session.handle('{"type":"response.cancel","secret":"secret"')
    await caller.hang_up()
    assert "secret" not in caplog.text


def test_appended_sound_is_resampled_without_seams() -> None:
    tone = (10_000 * np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000)).astype(np.int16)
    whole = EarResampler(24_000).convert(tone)
    stream = EarResampler(24_000)
    pieces = np.concatenate([stream.convert(tone[start : start + 700]) for start in range(0, 24_000, 700)])
    assert whole.dtype == np.float32
    assert len(whole) == pytest.approx(16_000, abs=32)
    assert np.abs(whole).max() == pytest.approx(10_000 / 32_768, rel=0.02)
    n = min(len(whole), len(pieces))
    assert np.allclose(whole[:n], pieces[:n], atol=1e-4)
    assert len(EarResampler(24_000).convert(np.zeros(0, np.int16))) == 0
