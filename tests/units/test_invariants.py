"""The invariants of the architecture, on real units with scripted or purpose-made engines.

Two have tests of their own: what clients may send (11) in test_fuzz.py, what the protocol may import (12) in
test_imports.py.
The interleavings are random but seeded; the last tests take away the gate and must see leaks.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.units.caller import Caller, Json, WatchedUnit, loud, quiet, said, scripted
from tests.units.conftest import UnitFactory
from tests.units.odd_engines import ClosedLLM, FailingLLM, FailingSTT, GatedLLM, GatedTTS, last_words
from units import PipelineConfig, UnitPool, build_unit
from units.engines.base import Transcription
from units.engines.scripted import ANSWER
from units.messages import End, Envelope, Finish, Float32, Generate, Token, ToolCall
from units.realtime.response import Response
from units.realtime.service import RealtimeService
from units.scope import CancelScope

SEEDS = range(4)
SESSIONS = 6
STEPS = 25
LEVEL = 1 / 64
"""Loudness with which session n speaks, times n."""


class WordyLLM:
    """Counts up, word by word, behind the words it was asked with: ``s3 t7:0. s3 t7:1. ``"""

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        asked = last_words(request)
        if "fail" in asked:
            raise ZeroDivisionError
        for n in range(30):
            yield Token(f"{asked}:{n}. ")
        yield Finish()


class LevelSTT:
    """Hears which session speaks from how loud it is."""

    live = True

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        session = round(float(np.abs(samples).max()) / LEVEL)
        return Transcription(f"s{session} voice" if session else "")


class NumberTTS:
    """A sound for each piece of text that no other text has."""

    sample_rate = 24_000
    voices = ("number",)

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        value = sum(text.encode()) % 30_000
        for _ in range(2):
            yield np.full(240, (value + 0.5) / 32767, np.float32)


class Improviser:
    """Does at random what callers do, ``steps`` times."""

    def __init__(self, unit: CountingUnit, number: int, rng: random.Random) -> None:
        self.unit = unit
        self.caller = Caller(unit)
        self.caller.configure(audio={"input": {"transcription": {"model": "any"}}})
        self.number, self.rng, self.turns = number, rng, 0

    def act(self) -> None:
        often = [self.ask, self.speak, self.listen]
        self.rng.choice(
            [*often, *often, self.hesitate, self.interrupt, self.cancel, self.clear, self.commit, self.forget]
        )()

    def ask(self) -> None:
        self.turns += 1
        fails = " fail" if self.rng.random() < 0.1 else ""
        modality = self.rng.choice(["audio", "audio", "text"])
        self.caller.write(f"s{self.number} t{self.turns}{fails}", output_modalities=[modality])

    def speak(self) -> None:
        self.caller.say(self.sound(300), quiet(800))

    def hesitate(self) -> None:
        self.caller.say(self.sound(300), quiet(300), self.sound(300), quiet(self.rng.choice([300, 800])))

    def interrupt(self) -> None:
        self.caller.say(self.sound(100))

    def cancel(self) -> None:
        self.caller.do("response.cancel")

    def clear(self) -> None:
        self.caller.do("output_audio_buffer.clear")

    def forget(self) -> None:
        self.caller.do("input_audio_buffer.clear")

    def commit(self) -> None:
        self.caller.do("input_audio_buffer.commit")

    def listen(self) -> None:
        self.caller.listen(self.rng.choice([20, 100, 2000]))

    def sound(self, ms: int) -> Float32:
        return loud(ms, LEVEL * self.number)

    async def improvise(self, steps: int) -> Caller:
        unit, rng = self.unit, self.rng
        for _ in range(steps):
            self.act()
            wanted, seen = rng.choice([0, 0, 1, 3, 10, 40]), sum(unit.received.values())
            if wanted:
                await unit.news(lambda seen=seen, wanted=wanted: sum(unit.received.values()) >= seen + wanted)
        return self.caller


class CountingUnit(WatchedUnit):
    """Counts what is delivered, and waits for it no longer than a moment."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.received: Counter[type] = Counter()

    def _receive(self, envelope: Envelope) -> None:
        self.received[type(envelope.body)] += 1
        super()._receive(envelope)

    async def news(self, fact: Any) -> None:
        """As ``eventually``, for what need not happen."""
        try:
            await asyncio.wait_for(self.eventually(fact), 0.01)
        except TimeoutError:
            return


def problems(caller: Caller, number: int, *, finished: bool = True) -> list[str]:
    """All that the log of one session has against invariants 1, 2, 3, 4 and 6."""
    if finished:
        caller.problems.finish()
    return [*caller.problems, *_text_problems(caller, number), *_sound_problems(caller.log)]


def _text_problems(caller: Caller, number: int) -> Iterator[str]:
    """Each response's sound is written between created and done, and is a prefix of its own text."""
    texts: Counter[str] = Counter()
    spoken: dict[str, str] = {}
    written: dict[str, str] = {}
    open_: set[str] = set()
    silenced: set[str] = set()
    for kind, *entry in caller.log:
        if kind == "write":
            tag, text, _ = entry
            spoken[tag] = spoken.get(tag, "") + text
            if tag not in open_:
                yield f"sound of {tag}, which is not open"
        elif kind == "event":
            event: Json = entry[0]
            if event["type"] == "response.created":
                open_.add(event["response"]["id"])
            elif event["type"] in ("response.output_text.delta", "response.output_audio_transcript.delta"):
                id = event["response_id"]
                written[id] = written.get(id, "") + event["delta"]
                if id not in open_:
                    yield f"text of {id}, which is not open"
            elif event["type"] == "output_audio_buffer.cleared":
                silenced.add(event["response_id"])
            elif event["type"] == "response.done":
                response = event["response"]
                open_.discard(response["id"])
                whole = response["status"] == "completed" and response["output_modalities"] == ["audio"]
                if whole and response["id"] not in silenced and spoken[response["id"]] != said(response):
                    yield f"completed, but only {spoken[response['id']]!r} was spoken"
    for id, text in spoken.items():
        if not written.get(id, "").startswith(text):
            yield f"{text!r} is not how {written.get(id)!r} begins"
    for text in written.values():
        texts.update(word for word in text.split() if word.startswith("s"))
    # An answer cut after its first word may be what the next one is asked with: "s3:0. s3:1. "
    strangers = (word for word in texts if word.partition(":")[0] != f"s{number}")
    yield from (f"{word} in session {number}" for word in strangers)


def _sound_problems(log: list[tuple[Any, ...]]) -> Iterator[str]:
    """What is heard is what was written since the last flush, in order."""
    waiting: list[int] = []
    for kind, *entry in log:
        if kind == "write":
            waiting += entry[2].tolist()
        elif kind == "flush":
            waiting.clear()
        elif kind == "heard":
            expected, waiting = waiting[: len(entry[0])], waiting[len(entry[0]) :]
            if entry[0] != expected:
                yield "something else was heard than was written"


async def improvised(seed: int) -> list[tuple[Caller, list[str]]]:
    """Sessions one after the other on one unit, each with what is wrong with it."""
    rng, results = random.Random(seed), []
    unit = CountingUnit(scripted(llm=WordyLLM(), stt=LevelSTT(), tts=NumberTTS()))
    unit.start()
    for number in range(1, SESSIONS + 1):
        caller = await Improviser(unit, number, rng).improvise(STEPS)
        caller.do("response.cancel")
        caller.session.close()
        length = len(caller.log)
        await unit.drained()
        results.append((caller, problems(caller, number, finished=False)))
        assert len(caller.log) == length, "the log grew after the session was closed"
    assert await unit.finished() == []
    wrong = {scope.name: count for scope, count in unit.ends.items() if count != 1}
    assert not wrong, f"not one End each: {wrong}"
    assert {*unit.submitted} <= {*unit.ends}
    return results


@pytest.mark.parametrize("seed", SEEDS)
async def test_invariants_1_to_8_hold_whatever_callers_do(seed: int) -> None:
    results = await improvised(seed)
    assert [found for _, found in results if found] == []
    assert sum(len(caller.responses) for caller, _ in results) > 15  # how many depends on the threads, too
    assert not any("internal error" in caller.closed for caller, _ in results)


async def test_random_callers_meet_every_outcome() -> None:
    """The interleavings are worth something: all of what can happen to a response happens."""
    wanted = {
        ("completed", None),
        ("cancelled", "client_cancelled"),
        ("cancelled", "turn_detected"),
        ("failed", None),
        "conversation.item.truncated",
        "output_audio_buffer.stopped",
    }
    met: set[Any] = set()
    for seed in range(99, 109):  # which of them one seed meets depends on how the threads run, too
        for caller, _ in await improvised(seed):
            met |= {event["type"] for event in caller.events}
            met |= {_outcome(event) for event in caller.events if event["type"] == "response.done"}
        if met >= wanted:
            return
    raise AssertionError(f"never met: {wanted - met}")


def _outcome(done: dict[str, Any]) -> tuple[str, str | None]:
    response = done["response"]
    return response["status"], (response["status_details"] or {}).get("reason")


class UngatedService(RealtimeService):
    """Lets through whatever comes, also of responses that are closed: the look-up is gone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.ever: dict[CancelScope, Response] = {}
        super().__init__(*args, **kwargs)

    def _new_response(self, *args: Any) -> Response:
        response = super()._new_response(*args)
        self.ever[response.scope] = response
        return response

    def receive(self, envelope: Envelope) -> list[Any]:
        response = self.ever.get(envelope.scope)
        if response is not None and not isinstance(envelope.body, End):
            return self._perform(self._advance(response, envelope.body))
        return super().receive(envelope)


@pytest.mark.breaks_the_protocol
async def test_without_the_gate_the_same_checks_find_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("units.session.RealtimeService", UngatedService)
    found: list[str] = []
    for seed in range(8):  # how much one seed lets through depends on how the threads run
        found += [problem for _, problems in await improvised(seed) for problem in problems]
        if all(any(words in problem for problem in found) for words in ("is done", "is not open")):
            return
    raise AssertionError(f"not all leaks were found: {found}")


# --- one by one ----------------------------------------------------------------------------------


async def test_1_every_response_is_done_once_even_when_its_session_is_interrupted(
    new_unit: UnitFactory,
) -> None:
    caller = Caller(new_unit(scripted(llm=GatedLLM("Well, "))))
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.do("response.cancel")
    caller.write("again")
    await caller.got("response.done", 2)
    caller.problems.finish()
    await caller.hang_up()
    assert Counter(caller.types)["response.created"] == Counter(caller.types)["response.done"] == 2


async def test_2_a_voice_that_returns_late_is_not_heard(new_unit: UnitFactory) -> None:
    tts = GatedTTS(free=2)
    caller = Caller(new_unit(scripted(tts=tts)))
    caller.write("hi")
    await caller.unit.eventually(lambda: caller.unit.output_queue.waiting == 960)
    scope = caller.unit.submitted[-1]
    caller.do("response.cancel")
    caller.do("output_audio_buffer.clear")
    before = len(caller.log)
    tts.gate.set()
    await caller.unit.eventually(lambda: caller.unit.ends[scope])
    assert caller.log[before:] == []
    assert not caller.unit.response_playing
    await caller.hang_up()


async def test_3_after_a_flush_only_newer_speech_is_played(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=WordyLLM(), tts=NumberTTS())))
    caller.write("s1 one")
    await caller.got("response.done")
    caller.listen(60)
    caller.say(loud(100))
    await caller.got("output_audio_buffer.cleared")
    assert caller.listen(20) == []
    caller.write("s1 two")
    await caller.got("response.done", 2)
    assert caller.listen(20)[0] == sum(b"s1 two:0.") % 30_000
    await caller.hang_up()


async def test_5_a_cancelled_scope_leaves_the_line_as_one_end(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=GatedLLM("Well, "))))
    caller.write("hi")
    caller.do("response.cancel")
    await caller.hang_up()
    assert [*caller.unit.ends.values()] == [1, 1]


async def test_6_two_sessions_at_once_never_hear_of_each_other() -> None:
    engines = scripted(llm=WordyLLM(), stt=LevelSTT(), tts=NumberTTS())
    units = [CountingUnit(engines) for _ in range(2)]
    for unit in units:
        unit.start()
    improvisers = [Improviser(unit, n, random.Random(n)) for n, unit in enumerate(units, 1)]
    callers = await asyncio.gather(*(each.improvise(40) for each in improvisers))
    for number, caller in enumerate(callers, 1):
        caller.do("response.cancel")
        assert problems(caller, number) == []
        await caller.hang_up()
    for unit in units:
        assert await unit.finished() == []


async def test_6_the_log_of_a_released_session_does_not_grow(new_unit: UnitFactory) -> None:
    llm = GatedLLM("Well, ")
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.session.close()
    length = len(caller.log)
    llm.gate.set()
    await caller.unit.drained()
    assert len(caller.log) == length


@pytest.mark.parametrize(("asked", "message"), [("fail", "not well"), ("[[bug]]", "internal error")])
async def test_7_a_failing_model_fails_one_response(asked: str, message: str, new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=FailingLLM())))
    caller.write(f"please {asked}")
    await caller.got("response.done")
    caller.write("fine")
    await caller.got("response.done", 2)
    failed, fine = caller.responses
    assert failed["status"] == "failed"
    assert message in failed["status_details"]["error"]["message"]
    assert fine["status"] == "completed"
    await caller.hang_up()


async def test_7_a_failing_recogniser_fails_one_turn(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(stt=FailingSTT())))
    caller.configure(audio={"input": {"transcription": {"model": "any"}}})
    caller.say(loud(300), quiet(800))
    await caller.got("response.done")
    caller.say(loud(300), quiet(800))
    await caller.got("response.done", 2)
    assert [response["status"] for response in caller.responses] == ["failed", "completed"]
    assert caller.of("conversation.item.input_audio_transcription.failed")
    await caller.hang_up()


async def test_8_a_cancel_is_answered_while_the_model_hangs(new_unit: UnitFactory) -> None:
    llm = GatedLLM("Well, ", rude=True)
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.do("response.cancel")
    assert caller.responses[0]["status"] == "cancelled"
    caller.session.close()
    assert caller.unit.outstanding
    assert caller.unit.session is not None
    llm.gate.set()
    await caller.hang_up()
    assert not caller.unit.outstanding


async def test_9_no_stage_thread_is_alive_after_stop_and_join() -> None:
    before = {*threading.enumerate()}
    pool = UnitPool(3, lambda index: build_unit(scripted(), index=index))
    pool.start()
    assert len({*threading.enumerate()} - before) == 18
    assert await pool.stop() == []
    assert not [thread for thread in {*threading.enumerate()} - before if "unit" in thread.name]


def switches(threads: list[threading.Thread]) -> list[str]:
    """How often each thread went to sleep by itself, as Linux counts it; nothing elsewhere."""
    if not Path("/proc/self/task").exists():
        return []
    paths = (Path(f"/proc/self/task/{thread.native_id}/status") for thread in threads)
    return [path.read_text().partition("voluntary_ctxt_switches:")[2].split()[0] for path in paths]


async def test_10_thirty_two_idle_units_make_no_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = UnitPool(32, lambda index: build_unit(scripted(), index=index))
    pool.start()
    threads = [runner.thread for unit in pool.units for runner in unit.handlers]
    callbacks: list[str] = []
    run = asyncio.events.Handle._run

    def counted(handle: asyncio.Handle) -> None:
        callbacks.append(repr(handle))
        run(handle)

    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(0.2, over.set_result, None)
    await over  # the threads have come to rest
    before, cpu = switches(threads), time.process_time()
    over = loop.create_future()
    loop.call_later(1.0, over.set_result, None)
    monkeypatch.setattr(asyncio.events.Handle, "_run", counted)
    await over
    monkeypatch.undo()
    assert len(callbacks) <= 2, callbacks  # this test's own timer and wake-up
    assert time.process_time() - cpu < 0.1
    assert switches(threads) == before
    assert await pool.stop() == []


async def held_response(caller: Caller) -> Response:
    """Make the caller pause: an answer is made on speculation, to its end."""
    caller.say(loud(300), quiet(300))
    service = caller.session.service
    await caller.unit.eventually(lambda: service.held and service.held.held)
    response = service.held
    assert response is not None
    await caller.unit.eventually(lambda: isinstance(response.held[-1], End))
    return response


async def test_13_an_answer_that_was_never_due_never_reaches_the_client(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    response = await held_response(caller)
    caller.say(loud(300))
    await caller.unit.eventually(lambda: response.scope.cancelled)
    assert caller.types == ["session.created", "input_audio_buffer.speech_started"]
    assert not caller.unit.response_playing
    caller.say(quiet(800))
    await caller.got("response.done")
    assert [each["id"] for each in caller.responses] != [response.id]
    assert len(caller.responses) == 1
    await caller.hang_up()


async def test_13_a_session_that_ends_first_never_hears_of_it(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    await held_response(caller)
    await caller.hang_up()
    assert caller.types == ["session.created", "input_audio_buffer.speech_started"]


async def test_an_answer_that_was_made_on_speculation_comes_at_once_when_it_is_due(
    new_unit: UnitFactory,
) -> None:
    caller = Caller(new_unit())
    response = await held_response(caller)
    caller.say(quiet(300))
    await caller.got("response.done")
    assert caller.responses[0]["id"] == response.id
    assert said(caller.responses[0]) == ANSWER
    await caller.hang_up()


async def test_a_failure_on_speculation_is_apologised_for_when_it_is_due(new_unit: UnitFactory) -> None:
    config = PipelineConfig(apology="Sorry about that.")
    caller = Caller(new_unit(scripted(llm=ClosedLLM()), config))
    await held_response(caller)
    caller.say(quiet(300))
    await caller.got("response.done")
    assert caller.responses[0]["status"] == "failed"
    assert said(caller.responses[0]) == "Sorry about that."
    assert caller.listen(20)
    await caller.hang_up()


async def test_what_was_said_before_a_failure_is_spoken_before_the_apology(new_unit: UnitFactory) -> None:
    config = PipelineConfig(apology="Sorry about that.")
    caller = Caller(new_unit(scripted(llm=FailingLLM()), config))
    caller.write("please fail")
    await caller.got("response.done")
    spoken = "".join(entry[2] for entry in caller.log if entry[0] == "write")
    assert spoken == said(caller.responses[0]) == "Well. Sorry about that."
    await caller.hang_up()
