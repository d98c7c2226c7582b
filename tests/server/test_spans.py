"""The spans of a call, of its turns and of what engines did, with scripted engines."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from server.spans import CallSpans
from server.watch import Begun
from tests.units.caller import Caller, WatchedUnit, loud, quiet, scripted
from tests.units.odd_engines import FailingLLM, GatedLLM
from units import EngineSettings, PipelineConfig
from units.engines.scripted import ScriptedSTT
from units.observe import Worked

Json = dict[str, Any]
ENGINES = {"llm": {"gen_ai.provider.name": "scripted", "gen_ai.request.model": "qwen3"}}


class Traced:
    """A tracer and what it has exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self._provider.get_tracer("test")

    def watch(self, door: Any = "webrtc", trace: Json | None = None, **clocks: Any) -> CallSpans:
        return CallSpans(self.tracer, Begun("rtc_1", door, 3, trace or {}), ENGINES, **clocks)

    def call(self, unit: WatchedUnit, door: Any = "webrtc") -> Caller:
        return Caller(unit, observers=[self.watch(door)])

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """In the order of their beginnings."""
        return sorted(
            (span for span in self.spans if span.name == name), key=lambda span: span.start_time or 0
        )

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def children(self, parent: ReadableSpan) -> list[ReadableSpan]:
        return [span for span in self.spans if span.parent and span.parent.span_id == parent.context.span_id]


@pytest.fixture
def traced() -> Iterator[Traced]:
    traced = Traced()
    yield traced
    for span in traced.spans:
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.start_time <= span.end_time, span.to_json()


def attributes(span: ReadableSpan, *names: str) -> list[Any]:
    return [(span.attributes or {}).get(name) for name in names]


def seconds(span: ReadableSpan) -> float:
    assert span.end_time is not None
    assert span.start_time is not None
    return (span.end_time - span.start_time) / 1e9


async def test_a_spoken_turn_from_the_first_word_to_the_end_of_the_answer(
    new_unit: Any, traced: Traced
) -> None:
    caller = traced.call(new_unit())
    before = time.time_ns()
    caller.configure(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "high"}}})
    caller.say(loud(1000), quiet(2000))
    response = (await caller.got("response.done"))["response"]
    assert traced.named("turn") == []  # its sound is not over
    caller.listen(60_000)
    await caller.got("output_audio_buffer.stopped")
    turn = traced.one("turn")
    item = caller.of("input_audio_buffer.committed")[0]["item_id"]
    session = caller.of("session.created")[0]["session"]["id"]
    await caller.hang_up()

    call = traced.one("call")
    ids = ("duologue.call.id", "duologue.session.id", "duologue.door", "duologue.unit", "duologue.end_reason")
    assert attributes(call, *ids) == ["rtc_1", session, "webrtc", 3, "hung up"]
    assert (call.kind, call.parent) == (SpanKind.SERVER, None)
    ids = ("duologue.item.id", "duologue.response.id", "duologue.response.status", "duologue.interrupted")
    assert attributes(turn, *ids) == [item, response["id"], "completed", False]
    assert 0.25 < attributes(turn, "duologue.latency")[0] < 5  # the silence is counted in samples
    assert [event.name for event in turn.events] == ["first sound"]
    assert turn in traced.children(call)
    kinds = {span.name for span in traced.children(turn)}
    assert kinds == {"vad", "turn detection", "stt", "llm", "tts"}
    assert before <= (turn.start_time or 0) <= (turn.end_time or 0) <= time.time_ns()
    assert all(span.status.status_code is StatusCode.UNSET for span in traced.spans)


async def test_what_engines_did_is_told_in_the_terms_of_the_conventions(
    new_unit: Any, traced: Traced
) -> None:
    caller = traced.call(new_unit())
    caller.say(loud(1000), quiet(2000))
    response = (await caller.got("response.done"))["response"]
    await caller.hang_up()
    llm, tts, (*_, stt) = traced.one("llm"), traced.named("tts")[0], traced.named("stt")
    assert attributes(
        llm,
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.request.stream",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.conversation.id",
    ) == [
        "chat",
        "scripted",
        "qwen3",
        True,
        response["usage"]["input_tokens"],
        response["usage"]["output_tokens"],
        response["conversation_id"],
    ]
    assert 0 <= attributes(llm, "gen_ai.response.time_to_first_chunk")[0] <= seconds(llm)
    assert attributes(tts, "gen_ai.output.type", "duologue.outcome") == ["speech", "done"]
    assert attributes(tts, "duologue.audio.seconds")[0] > 0.1
    assert attributes(stt, "duologue.purpose") == ["final"]
    assert 1 < attributes(stt, "duologue.audio.seconds")[0] < 2
    (vad,) = traced.named("vad")
    assert 1 < attributes(vad, "duologue.audio.seconds")[0] < 2.5


async def test_a_written_turn_begins_with_its_response(new_unit: Any, traced: Traced) -> None:
    caller = traced.call(new_unit())
    caller.write("[[echo:Yes.]]", output_modalities=["text"])
    await caller.got("response.done")
    turn = traced.one("turn")
    assert attributes(turn, "duologue.item.id", "duologue.response.status") == [None, "completed"]
    assert {span.name for span in traced.children(turn)} == {"llm"}
    await caller.hang_up()


async def test_an_out_of_band_response_is_a_turn_of_its_own(new_unit: Any, traced: Traced) -> None:
    caller = traced.call(new_unit())
    caller.do("response.create", response={"conversation": "none", "output_modalities": ["text"]})
    await caller.got("response.done")
    assert attributes(traced.one("llm"), "gen_ai.conversation.id") == [None]
    await caller.hang_up()
    assert len(traced.named("turn")) == 1


async def test_speaking_into_an_answer_ends_its_turn_as_interrupted(new_unit: Any, traced: Traced) -> None:
    caller = traced.call(new_unit())
    caller.write("[[long]]")
    await caller.got("response.done")
    caller.listen(200)
    caller.say(loud(300))
    await caller.got("output_audio_buffer.cleared")
    (turn,) = traced.named("turn")
    assert attributes(turn, "duologue.interrupted", "duologue.response.status") == [True, "completed"]
    await caller.hang_up()
    assert len(traced.named("turn")) == 2


async def test_speaking_into_an_answer_that_is_still_being_made(new_unit: Any, traced: Traced) -> None:
    unit = new_unit(scripted(llm=GatedLLM(before="Well, this is the beginning of it. ")))
    caller = traced.call(unit)
    caller.write("hello")
    await unit.eventually(lambda: unit.output_queue.waiting)
    caller.listen(100)
    caller.say(loud(300))
    await caller.got("output_audio_buffer.cleared")
    await unit.eventually(lambda: unit.outstanding == {caller.session.scope})
    (turn,) = traced.named("turn")
    assert attributes(turn, "duologue.interrupted", "duologue.response.status") == [True, "cancelled"]
    llm = traced.one("llm")
    assert attributes(llm, "duologue.outcome") == ["stopped"]
    assert llm.parent is not None
    assert llm.parent.span_id == turn.context.span_id
    await caller.hang_up()


async def test_a_failing_model_is_an_error_of_its_turn(new_unit: Any, traced: Traced) -> None:
    caller = traced.call(new_unit(scripted(llm=FailingLLM())))
    caller.write("fail")
    await caller.got("response.done")
    await caller.hang_up()
    for name in ("turn", "llm"):
        span = traced.one(name)
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span, "error.type")[0]
    assert attributes(traced.one("turn"), "duologue.response.status") == ["failed"]


async def test_an_apology_belongs_to_the_turn_that_failed(new_unit: Any, traced: Traced) -> None:
    config = PipelineConfig(apology="Sorry, that went wrong.")
    caller = traced.call(new_unit(scripted(llm=FailingLLM()), config))
    caller.write("fail")
    await caller.got("response.done")
    caller.listen(60_000)
    await caller.got("output_audio_buffer.stopped")
    await caller.hang_up()
    turn = traced.one("turn")
    assert turn.status.status_code is StatusCode.ERROR
    assert {span.name for span in traced.children(turn)} == {"llm", "tts"}
    assert [span for span in traced.spans if attributes(span, "duologue.withdrawn") != [None]] == []


async def test_a_withdrawn_answer_is_no_turn_and_its_work_is_marked(new_unit: Any, traced: Traced) -> None:
    unit = new_unit(scripted(llm=GatedLLM(before="Too early. ")))
    caller = traced.call(unit)
    caller.say(loud(600), quiet(400))
    await unit.eventually(lambda: unit.submitted)
    caller.say(loud(600), quiet(2000))
    response = (await caller.got("response.done"))["response"]
    await caller.hang_up()
    turn = traced.one("turn")
    withdrawn = [llm for llm in traced.named("llm") if attributes(llm, "duologue.withdrawn") == [True]]
    answered = [llm for llm in traced.named("llm") if attributes(llm, "duologue.withdrawn") == [None]]
    assert len(withdrawn) == len(answered) == 1
    assert attributes(answered[0], "duologue.response.id") == [response["id"]]
    assert attributes(withdrawn[0], "duologue.outcome") == ["stopped"]
    assert {withdrawn[0], answered[0]} <= set(traced.children(turn))


async def test_a_turn_in_which_nothing_was_said_gets_no_answer(new_unit: Any, traced: Traced) -> None:
    class Deaf(ScriptedSTT):
        def transcribe(self, samples: Any, *, language: str = "") -> Any:
            return type(super().transcribe(samples, language=language))("")

    caller = traced.call(new_unit(scripted(stt=Deaf(EngineSettings("scripted")))))
    caller.configure(audio={"input": {"transcription": {"model": "whisper-1"}}})
    caller.say(loud(600), quiet(2000))
    await caller.got("conversation.item.input_audio_transcription.completed")
    await caller.hang_up()
    turn = traced.one("turn")
    assert attributes(turn, "duologue.response.id", "duologue.interrupted", "error.type") == [None] * 3


async def test_a_turn_that_a_client_commits_begins_there(new_unit: Any, traced: Traced) -> None:
    caller = traced.call(new_unit())
    caller.configure(audio={"input": {"turn_detection": None}})
    caller.say(loud(600))
    caller.do("input_audio_buffer.commit")
    caller.do("response.create")
    await caller.got("response.done")
    caller.listen(60_000)
    await caller.got("output_audio_buffer.stopped")
    await caller.hang_up()
    turn = traced.one("turn")
    assert attributes(turn, "duologue.item.id") == [caller.of("input_audio_buffer.committed")[0]["item_id"]]
    assert {span.name for span in traced.children(turn)} == {"stt", "llm", "tts"}


async def test_hanging_up_ends_what_is_open(new_unit: Any, traced: Traced) -> None:
    caller = traced.call(new_unit())
    caller.write("[[long]]")
    await caller.got("response.done")
    caller.listen(200)
    caller.say(loud(100))
    await caller.hang_up()
    assert {span.name for span in traced.spans} >= {"call", "turn", "llm", "tts"}
    call = traced.one("call")
    assert all((span.end_time or 0) <= (call.end_time or 0) for span in traced.named("turn"))


async def test_our_own_fault_is_an_error_of_the_call(traced: Traced) -> None:
    traced.watch().closed("internal error")
    assert traced.one("call").status.status_code is StatusCode.ERROR


async def test_nothing_that_was_said_is_in_a_span(new_unit: Any, traced: Traced) -> None:
    caller = traced.call(new_unit())
    caller.configure(audio={"input": {"transcription": {"model": "whisper-1"}}}, instructions="Be brief.")
    caller.write("[[echo:A secret answer.]]")
    await caller.got("response.done")
    caller.say(loud(600), quiet(2000))
    await caller.got("response.done", 2)
    await caller.hang_up()
    heard = caller.of("conversation.item.input_audio_transcription.completed")[0]["transcript"]
    said = [each["transcript"] for each in caller.of("response.output_audio_transcript.done")]
    shown = "\n".join(span.to_json() for span in traced.spans)
    assert heard
    assert all(text not in shown for text in ("secret", "brief", heard, *said))


# --- time, and clients of a WebSocket, from events alone ---------------------------------------------


class Clock:
    """Monotonic seconds and a wall clock that somebody sets back."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = 1_700_000_000 * 10**9

    def watch(self, traced: Traced, door: str = "websocket") -> CallSpans:
        return traced.watch(door, clock=lambda: self.now, wall=lambda: self.wall)

    def at(self, span: ReadableSpan) -> tuple[float, float]:
        """Beginning and end, in seconds after the beginning of the call."""
        return tuple(round(((ns or 0) - self.wall) / 1e9, 3) for ns in (span.start_time, span.end_time))  # type: ignore[return-value]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def created(id: str = "resp_1") -> Json:
    return {"type": "response.created", "response": {"id": id, "conversation_id": "conv_1"}}


def done(id: str = "resp_1", status: str = "completed", details: Json | None = None) -> Json:
    response = {"id": id, "status": status, "status_details": details, "usage": {"input_tokens": 0}}
    return {"type": "response.done", "response": response}


def answered(clock: Clock, call: CallSpans, seconds: float) -> None:
    """An answer of so many seconds: the first sound after 0.15, done after 0.25."""
    call.sent(created())
    added = {"type": "response.output_item.added", "response_id": "resp_1", "item": {"id": "item_a"}}
    call.sent(added)
    call.worked("resp_1", Worked("tts", clock.now, clock.now + 0.1, clock.now + 0.15, seconds))
    clock.now += 0.15
    call.sent({"type": "response.output_audio.delta", "response_id": "resp_1", "delta": "AAAA"})
    clock.now += 0.1
    call.sent(done())


def test_spans_have_the_distances_that_were_measured_on_the_wall_clock_of_the_beginning(
    traced: Traced, clock: Clock
) -> None:
    call = clock.watch(traced)
    began = clock.wall
    clock.now += 0.25
    call.worked("resp_1", Worked("llm", 1000.05, 1000.1, 1000.2, 7))
    call.sent(created())
    clock.wall, clock.now = clock.wall - 3600 * 10**9, clock.now + 0.5
    call.sent(done())
    clock.now += 1
    call.closed("the client left")
    clock.wall = began
    assert clock.at(traced.one("call")) == (0.0, 1.75)
    assert clock.at(traced.one("turn")) == (0.25, 0.75)
    assert clock.at(traced.one("llm")) == (0.05, 0.2)
    assert attributes(traced.one("llm"), "gen_ai.response.time_to_first_chunk") == [pytest.approx(0.05)]


@pytest.mark.parametrize(
    ("then", "after", "ends", "interrupted"),
    [
        ({"type": "rate_limits.updated"}, 9.0, 3.15, False),
        ({"type": "conversation.item.truncated", "item_id": "item_a"}, 0.75, 1.0, True),
        (None, 0.75, 1.0, False),
    ],
)
def test_a_client_that_plays_the_sound_itself_is_given_the_time_that_it_takes(
    traced: Traced, clock: Clock, then: Json | None, after: float, ends: float, interrupted: bool
) -> None:
    call = clock.watch(traced)
    answered(clock, call, seconds=3.0)
    assert traced.named("turn") == []
    clock.now += after
    if then is not None:
        call.sent(then)
        assert len(traced.named("turn")) == 1
    call.closed("the client left")
    turn = traced.one("turn")
    assert clock.at(turn) == (0.0, ends)
    assert attributes(turn, "duologue.interrupted") == [interrupted]
    assert attributes(turn, "duologue.latency") == [pytest.approx(0.15)]


def test_latency_is_counted_from_where_the_caller_has_finished(traced: Traced, clock: Clock) -> None:
    call = clock.watch(traced)
    call.sent({"type": "input_audio_buffer.speech_started", "audio_start_ms": 0, "item_id": "item_1"})
    clock.now += 2
    call.sent({"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 2000, "item_id": "item_1"})
    call.sent({"type": "input_audio_buffer.committed", "item_id": "item_1"})
    clock.now += 0.3
    answered(clock, call, seconds=1.0)
    call.closed("the client left")
    assert attributes(traced.one("turn"), "duologue.latency") == [pytest.approx(0.45)]
    assert clock.at(traced.one("vad")) == (0.0, 2.0)


def test_the_trace_of_the_client_goes_on(traced: Traced) -> None:
    parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
    traced.watch(trace=parent).closed("hung up")
    call = traced.one("call")
    assert f"{call.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert call.parent is not None
    assert f"{call.parent.span_id:016x}" == "b7ad6b7169203331"
    assert call.context.trace_state.get("a") == "1"


@pytest.mark.parametrize(
    "traceparent", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "\x00" * 9]
)
def test_a_trace_that_makes_no_sense_is_passed_over(traced: Traced, traceparent: str) -> None:
    traced.watch(trace={"traceparent": traceparent}).closed("hung up")
    assert traced.one("call").parent is None


def test_work_for_what_is_never_announced_does_not_pile_up(traced: Traced, clock: Clock) -> None:
    call = clock.watch(traced)
    for number in range(1000):
        call.worked(f"resp_{number}", Worked("llm", 1000.0, None, 1000.0, outcome="stopped"))
    assert len(traced.named("llm")) > 900
    for number in range(1000):
        call.sent(created(f"resp_{number}"))
        call.sent(done(f"resp_{number}"))
    assert len(call._answers) + len(call._early) + len(call._open) < 100
    call.closed("the client left")
    assert len(traced.named("turn")) == 1000


def test_many_answers_at_once_are_turns_of_their_own(traced: Traced, clock: Clock) -> None:
    call = clock.watch(traced)
    ids = [f"resp_{number}" for number in range(100)]
    for id in ids:
        call.sent(created(id))
    for id in ids:
        call.worked(id, Worked("llm", 1000.0, 1000.0, 1000.0))
        call.sent(done(id))
    turns, work = traced.named("turn"), traced.named("llm")
    assert [turn.attributes["duologue.response.status"] for turn in turns] == ["completed"] * 100
    assert not [each for each in work if "duologue.withdrawn" in each.attributes]
    assert len(work) == 100
    call.closed("the client left")


def test_an_answer_that_waits_behind_another_has_its_own_sound(traced: Traced, clock: Clock) -> None:
    call = clock.watch(traced, "webrtc")
    for id in ("resp_1", "resp_2", "resp_3"):
        call.sent(created(id))
        call.worked(id, Worked("tts", clock.now, clock.now, clock.now, 1.0))
        call.sent(done(id))
    for id in ("resp_1", "resp_2", "resp_3"):
        call.sent({"type": "output_audio_buffer.started", "response_id": id})
        clock.now += 1
        call.sent({"type": "output_audio_buffer.stopped", "response_id": id})
    assert [clock.at(turn)[1] for turn in traced.named("turn")] == [1.0, 2.0, 3.0]


def test_what_is_only_written_down_lasts_until_its_words_are_known(traced: Traced, clock: Clock) -> None:
    call = clock.watch(traced)
    for number in (1, 2):
        item = {"item_id": f"item_{number}"}
        call.sent({"type": "input_audio_buffer.speech_started", "audio_start_ms": 0, **item})
        clock.now += 1
        call.sent({"type": "input_audio_buffer.speech_stopped", "audio_end_ms": 1000, **item})
        call.sent({"type": "input_audio_buffer.committed", **item})
        call.worked("unit 0 session 1", Worked("stt", clock.now, None, clock.now + 0.5, 1.0, purpose="final"))
        clock.now += 4
    call.closed("the client left")
    assert [clock.at(turn) for turn in traced.named("turn")] == [(0.0, 1.5), (5.0, 6.5)]


def test_every_attribute_is_explained() -> None:
    root = Path(__file__).resolve().parents[2]
    names = re.findall(r'"((?:duologue|gen_ai|error)\.[a-z_.]+)"', (root / "server/spans.py").read_text())
    names += re.findall(r'"(gen_ai\.[a-z_.]+)"', (root / "server/tracing.py").read_text())
    page = (root / "docs/watching.md").read_text(encoding="utf-8")
    assert len(set(names)) > 15
    assert [name for name in names if f"`{name}`" not in page] == []
