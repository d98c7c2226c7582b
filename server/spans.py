"""A call as spans of OpenTelemetry. What was said is in none of them.

    call                    from the door to the hang-up
        turn                from where the caller is heard to speak, or from a response that was asked for in
                            writing, to the end of the answer's sound
            vad             while the caller spoke, as voice activity detection has it
            turn detection, stt, llm, tts       one piece of an engine's work each

A response may be made before the caller's turn is over, and is announced only if the turn then is. What
engines did for it waits here until that is known. If the response was withdrawn there never was a turn of its
own: the work is shown in the turn in which the caller went on speaking, as ``duologue.withdrawn``.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.watch import Begun
from units.observe import Observer, Worked

Attributes = Mapping[str, str | bool | int | float]

_REMEMBERED = 32
"""Answers that are over, whose late work can still be put where it belongs; and pieces of work that wait."""


@dataclass(slots=True, eq=False)
class _Turn:
    """Times as of the call's clock, in seconds."""

    span: Span
    began: float
    latest: float
    """When something last happened in it."""
    item_id: str = ""
    spoke_from_ms: int = 0
    spoke_until: float | None = None
    """None: the caller still speaks, or never did."""
    silent_from: float | None = None
    """Where the caller fell silent for good, if that was heard."""
    response_id: str = ""
    conversation_id: str | None = None
    first_sound: float | None = None
    seconds: float = 0.0
    """Length of the sound that was made."""
    silent: bool = False
    """Its sound is over."""
    done: bool = False
    interrupted: bool = False
    ends: float | None = None
    """When a client that plays the sound itself will have played it, if it began at once."""
    unshown: list[Worked] = field(default_factory=list)
    """Work of the language model, until it is known what it was given to read."""

    def over(self, now: float) -> float:
        """When it ended, if it did not go on until ``now``."""
        if not self.response_id or (self.done and self.first_sound is None):
            return self.latest
        return now if self.ends is None else min(self.ends, now)


class CallSpans(Observer):
    """One call. ``engines``: by stage, what is to be said of its engine.

    ``clock`` is that of :class:`Worked`, in seconds; ``wall`` is compared with it once, so that all times of
    a call have the distances that were measured, whatever happens to the wall clock meanwhile.
    """

    def __init__(
        self,
        tracer: Tracer,
        begun: Begun,
        engines: Mapping[str, Attributes],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._tracer = tracer
        self._engines = engines
        self._clock = clock
        self._plays_here = begun.door == "webrtc"
        now = clock()
        self._zero = wall() - int(now * 1e9)
        self._call_id = begun.id
        self._call = tracer.start_span(
            "call",
            TraceContextTextMapPropagator().extract(begun.trace),
            kind=SpanKind.SERVER,
            attributes={
                "duologue.call.id": begun.id,
                "duologue.door": begun.door,
                "duologue.unit": begun.unit,
            },
            start_time=self._ns(now),
        )
        self._open: dict[_Turn, None] = {}  # in the order in which they began
        self._caller: _Turn | None = None  # the caller's latest turn
        self._before: _Turn | None = None  # and the one before
        self._answers: OrderedDict[str, _Turn] = OrderedDict()  # by response, the latest
        self._said_by: dict[str, _Turn] = {}  # by item of an answer, while its turn is open
        self._early: list[tuple[str, _Turn | None, Worked]] = []  # for responses that are not announced

    # --- what an observer is told ----------------------------------------------------------------

    def sent(self, event: dict[str, Any]) -> None:
        now = self._clock()
        for played in [turn for turn in self._open if turn.ends is not None and turn.ends <= now]:
            self._end(played, now)
        match event:
            case {"type": "session.created", "session": {"id": session_id}}:
                self._call.set_attribute("duologue.session.id", session_id)
            case {"type": "input_audio_buffer.speech_started", "item_id": item, "audio_start_ms": start_ms}:
                self._begin_callers(now, item).spoke_from_ms = start_ms
            case {"type": "input_audio_buffer.speech_stopped", "item_id": item, "audio_end_ms": end_ms}:
                self._spoken(item, end_ms, now)
            case {"type": "input_audio_buffer.committed", "item_id": item}:
                self._committed(item, now)
            case {"type": "input_audio_buffer.cleared"}:
                if self._caller is not None and self._caller.spoke_until is None:
                    self._give_up()
            case {"type": "response.created", "response": response}:
                self._announced(response, now)
            case {"type": "response.output_item.added", "response_id": id, "item": {"id": item}}:
                if (turn := self._answers.get(id)) is not None:
                    self._said_by[item] = turn
            case {"type": "output_audio_buffer.started" | "response.output_audio.delta", "response_id": id}:
                self._sounds(id, now)
            case {"type": "output_audio_buffer.stopped" | "output_audio_buffer.cleared" as kind}:
                self._fell_silent(event["response_id"], kind == "output_audio_buffer.cleared", now)
            case {"type": "conversation.item.truncated", "item_id": item} if item in self._said_by:
                self._fell_silent(self._said_by[item].response_id, True, now)
            case {"type": "response.done", "response": response}:
                self._done(response, now)

    def worked(self, scope: str, work: Worked) -> None:
        if work.stage == "vad":  # the silence that ends a turn
            if self._caller is not None:
                self._caller.silent_from = work.began
            return
        if not scope.startswith("resp_"):
            turn = self._listening(work)
            if turn is not None:
                turn.latest = max(turn.latest, work.ended)
            self._show(self._call if turn is None else turn.span, work)
            return
        response_id = scope.partition(" ")[0]  # of an apology, too
        turn = self._answers.get(response_id)
        if turn is None:
            self._early.append((response_id, self._caller, work))
            if len(self._early) > _REMEMBERED:
                self._withdraw(self._early[:1])
                del self._early[0]
        else:
            self._answer(turn, work)

    def closed(self, reason: str) -> None:
        now = self._clock()
        self._withdraw(self._early)
        for turn in [*self._open]:
            self._end(turn, now)
        self._call.set_attribute("duologue.end_reason", reason)
        if reason == "internal error":
            _failed(self._call, "internal_error")
        self._call.end(self._ns(now))

    # --- turns -----------------------------------------------------------------------------------

    def _begin(self, now: float) -> _Turn:
        span = self._child(self._call, "turn", now, {"duologue.call.id": self._call_id})
        turn = _Turn(span, now, now)
        self._open[turn] = None
        return turn

    def _begin_callers(self, now: float, item_id: str) -> _Turn:
        self._give_up()
        self._withdraw(self._early)
        self._early.clear()
        turn = self._begin(now)
        turn.item_id = item_id
        turn.span.set_attribute("duologue.item.id", item_id)
        self._before, self._caller = self._caller, turn
        return turn

    def _give_up(self) -> None:
        """The caller's latest turn gets no answer any more."""
        if self._caller is not None and self._caller in self._open and not self._caller.response_id:
            self._end(self._caller, self._caller.latest)

    def _spoken(self, item_id: str, end_ms: int, now: float) -> None:
        turn = self._caller
        if turn is None or turn.item_id != item_id:
            return
        turn.spoke_until = turn.latest = now
        seconds = (end_ms - turn.spoke_from_ms) / 1000
        self._child(turn.span, "vad", turn.began, {"duologue.audio.seconds": seconds}).end(self._ns(now))

    def _committed(self, item_id: str, now: float) -> None:
        turn = self._caller
        if turn is None or turn.item_id != item_id:  # by hand, or because nobody spoke
            turn = self._begin_callers(now, item_id)
        turn.latest = now
        if turn.spoke_until is None:
            turn.spoke_until = now

    def _announced(self, response: dict[str, Any], now: float) -> None:
        id, in_conversation = response["id"], response["conversation_id"] is not None
        turn = self._unanswered if in_conversation else None
        turn = turn or self._begin(now)
        turn.response_id, turn.conversation_id, turn.latest = id, response["conversation_id"], now
        turn.span.set_attribute("duologue.response.id", id)
        self._answers[id] = turn
        if len(self._answers) > len(self._open) + _REMEMBERED:
            del self._answers[next(id for id, each in self._answers.items() if each not in self._open)]
        for each in [each for each in self._early if each[0] == id]:
            self._early.remove(each)
            self._answer(turn, each[2])
        if in_conversation:  # one response at a time is made before it is announced
            self._withdraw(self._early)
            self._early.clear()

    @property
    def _unanswered(self) -> _Turn | None:
        """The caller's latest turn, if it is over and has no answer yet."""
        turn = self._caller
        if turn is None or turn not in self._open or turn.response_id or turn.spoke_until is None:
            return None
        return turn

    def _sounds(self, response_id: str, now: float) -> None:
        turn = self._answers.get(response_id)
        if turn is None or turn not in self._open or turn.first_sound is not None:
            return
        turn.first_sound = turn.latest = now
        since = (time for time in (turn.silent_from, turn.spoke_until, turn.began) if time is not None)
        turn.span.set_attribute("duologue.latency", now - next(since))
        turn.span.add_event("first sound", timestamp=self._ns(now))

    def _fell_silent(self, response_id: str, interrupted: bool, now: float) -> None:
        turn = self._answers.get(response_id)
        if turn is None or turn not in self._open:
            return
        turn.silent = True
        turn.interrupted = turn.interrupted or interrupted
        if turn.done:
            self._end(turn, now)

    def _done(self, response: dict[str, Any], now: float) -> None:
        turn = self._answers.get(response["id"])
        if turn is None or turn not in self._open:
            return
        turn.done, turn.latest = True, now
        turn.span.set_attribute("duologue.response.status", response["status"])
        details = response["status_details"] or {}
        if details.get("reason") == "turn_detected":
            turn.interrupted = True
        if response["status"] == "failed":
            error = details.get("error") or {}
            _failed(turn.span, error.get("code") or error.get("type") or "_OTHER")
        self._show_unshown(turn, response["usage"] or {})
        nothing_follows = turn.first_sound is None or not self._plays_here
        if turn.silent or not turn.seconds or (turn.interrupted and nothing_follows):
            self._end(turn, now)
        elif not self._plays_here and turn.first_sound is not None:
            turn.ends = max(now, turn.first_sound + turn.seconds)

    def _end(self, turn: _Turn, now: float) -> None:
        del self._open[turn]
        self._show_unshown(turn, {})
        for item in [item for item, each in self._said_by.items() if each is turn]:
            del self._said_by[item]
        if turn.response_id:
            turn.span.set_attribute("duologue.interrupted", turn.interrupted)
        turn.span.end(self._ns(turn.over(now)))

    # --- what engines did ------------------------------------------------------------------------

    def _listening(self, work: Worked) -> _Turn | None:
        """The turn that an engine worked for that listens; None: a recording, or nobody has spoken yet."""
        if work.purpose == "recording" or self._caller is None:
            return None
        return self._before if self._before and work.ended < self._caller.began else self._caller

    def _answer(self, turn: _Turn, work: Worked) -> None:
        if work.stage == "tts":
            turn.seconds += work.amount
        if work.stage == "llm" and turn in self._open and not turn.done:
            turn.unshown.append(work)
        else:
            self._show(turn.span, work, self._of_answer(turn))

    def _show_unshown(self, turn: _Turn, usage: dict[str, Any]) -> None:
        for work in turn.unshown:
            self._show(turn.span, work, {**self._of_answer(turn), **_usage(usage)})
        turn.unshown.clear()

    def _of_answer(self, turn: _Turn) -> dict[str, str]:
        attributes = {"duologue.response.id": turn.response_id}
        if turn.conversation_id is not None:
            attributes["gen_ai.conversation.id"] = turn.conversation_id
        return attributes

    def _withdraw(self, early: list[tuple[str, _Turn | None, Worked]]) -> None:
        for response_id, turn, work in early:
            parent = self._call if turn is None else turn.span
            self._show(parent, work, {"duologue.response.id": response_id, "duologue.withdrawn": True})

    def _show(self, parent: Span, work: Worked, more: Attributes = {}) -> None:  # noqa: B006
        name = "turn detection" if work.stage == "turn" else work.stage
        attributes = {**self._engines.get(work.stage, {}), **_measured(work), **more}
        span = self._child(parent, name, work.began, attributes)
        if work.outcome == "failed":
            _failed(span, "_OTHER")
        span.end(self._ns(work.ended))

    def _child(self, parent: Span, name: str, at: float, attributes: Attributes) -> Span:
        context = set_span_in_context(parent)
        return self._tracer.start_span(name, context, attributes=attributes, start_time=self._ns(at))

    def _ns(self, at: float) -> int:
        """A time of the clock as nanoseconds of the Unix epoch."""
        return self._zero + int(at * 1e9)


def _measured(work: Worked) -> dict[str, str | bool | int | float]:
    """In the terms of the conventions for generative models, as far as these have any.

    https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/client-inference.md
    """
    attributes: dict[str, str | bool | int | float] = {"duologue.outcome": work.outcome}
    if work.stage in ("llm", "tts"):
        attributes["gen_ai.operation.name"] = "chat" if work.stage == "llm" else "text_to_speech"
        attributes["gen_ai.output.type"] = "text" if work.stage == "llm" else "speech"
        attributes["gen_ai.request.stream"] = True
        if work.first is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = work.first - work.began
    if work.stage == "stt":
        attributes["gen_ai.operation.name"] = "speech_to_text"
        attributes["duologue.purpose"] = work.purpose
    if work.stage != "llm":
        attributes["duologue.audio.seconds"] = round(work.amount, 3)
    elif work.amount:
        attributes["gen_ai.usage.output_tokens"] = int(work.amount)
    return attributes


def _usage(usage: dict[str, Any]) -> dict[str, int]:
    """Tokens that the model read, if it says so."""
    attributes = {}
    if read := usage.get("input_tokens"):
        attributes["gen_ai.usage.input_tokens"] = int(read)
        if cached := usage["input_token_details"]["cached_tokens"]:
            attributes["gen_ai.usage.cache_read.input_tokens"] = int(cached)
    return attributes


def _failed(span: Span, why: str) -> None:
    span.set_attribute("error.type", why)
    span.set_status(StatusCode.ERROR, why)
