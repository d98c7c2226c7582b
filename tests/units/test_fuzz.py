"""Whatever a client sends, in whatever state the session is: effects or one error, never an exception.

The pure service is driven by hypothesis with client events, near-valid and garbage, between notices that
the stages could send. All that comes out is held against the schemas and the order of the protocol.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.units.caller import Problems
from units.messages import (
    Audio,
    Commit,
    Committed,
    End,
    Envelope,
    Failed,
    Finish,
    Generate,
    Say,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    TextDelta,
    TextFinished,
    ToolCall,
    ToolCalled,
    TranscriptDelta,
    TranscriptFailed,
    TranscriptFinal,
)
from units.playout import Playout
from units.realtime.effects import Close, Effect, FinishPlaying, FlushPlayout, Hear, Play, SendEvent, Submit
from units.realtime.service import RealtimeService, ServiceConfig
from units.scope import CancelScope

_IDS = st.sampled_from(["a", "b", "c", "root", "", "item_1", "item_2", "item_5", "x y", "ü"])
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 70_000),
    st.floats(-2, 2),
    st.text(max_size=5),
    st.sampled_from(["auto", "none", "inf", "audio", "text", "function", "completed", "en", "call_1"]),
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda n: _JSON if n == 0 else good)


def _object(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={name: _mostly(member) for name, member in members.items()})


def _whole(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({name: _mostly(member) for name, member in members.items()})


_text = st.text(max_size=8)
_turn_detection = st.none() | _object(
    type=st.sampled_from(["server_vad", "semantic_vad"]),
    threshold=st.floats(0, 1),
    silence_duration_ms=st.integers(0, 900),
    idle_timeout_ms=st.none() | st.integers(5_000, 30_000),
    create_response=st.booleans(),
    interrupt_response=st.booleans(),
    eagerness=st.sampled_from(["low", "auto"]),
)
_format = _object(type=st.sampled_from(["audio/pcm", "audio/pcmu"]), rate=st.just(24_000))
_output = _object(
    format=_format, voice=_text | _object(id=_text), speed=st.floats(0.25, 1.5, allow_nan=False)
)
_input = _object(
    format=_format,
    noise_reduction=st.none() | _object(type=st.just("near_field"), strength=st.floats(0, 1)),
    transcription=st.none() | _object(model=_text, language=st.none() | _text, delay=st.just("low")),
    turn_detection=_turn_detection,
)
_tool = _whole(type=st.just("function"), name=_text) | _object(
    type=st.just("function"), name=_text, description=_text, parameters=_JSON, strict=st.booleans()
)
_shared: dict[str, st.SearchStrategy[Any]] = {
    "output_modalities": st.sampled_from([["audio"], ["text"], ["audio", "text"]]),
    "instructions": _text,
    "tools": st.lists(_tool, max_size=2),
    "tool_choice": st.sampled_from(["auto", "none", "required"])
    | _object(type=st.just("function"), name=_text),
    "max_output_tokens": st.just("inf") | st.integers(1, 4_096),
    "parallel_tool_calls": st.booleans(),
    "reasoning": st.none() | _object(effort=st.just("low")),
    "prompt": st.none() | _object(id=_text, version=_text, variables=_JSON),
}
_session = _object(
    **_shared,
    model=_text,
    audio=_object(input=_input, output=_output),
    truncation=st.just("auto") | _object(type=st.just("retention_ratio"), retention_ratio=st.floats(0, 1)),
    tracing=st.none() | st.just("auto") | _object(workflow_name=_text, metadata=_JSON),
    include=st.none() | st.just(["item.input_audio_transcription.logprobs"]),
).map(lambda session: {"type": "realtime", **session} if isinstance(session, dict) else session)
_part = _whole(
    type=st.sampled_from(["input_text", "output_text", "input_audio", "input_image", "text", "output_audio"]),
    text=_text,
) | _object(type=st.sampled_from(["input_audio", "input_image"]), transcript=_text, image_url=_text)
_item = st.one_of(
    _whole(
        type=st.just("message"),
        role=st.sampled_from(["user", "system", "assistant"]),
        content=st.lists(_part, max_size=2),
    ),
    _whole(
        type=st.just("message"),
        id=_IDS,
        role=st.just("user"),
        content=st.just([{"type": "input_text", "text": "hi"}]),
    ),
    _whole(type=st.just("function_call"), call_id=st.just("call_1"), name=_text, arguments=_text),
    _whole(type=st.just("function_call_output"), call_id=st.just("call_1"), output=_text),
    _object(type=st.just("item_reference"), id=_IDS),
)
_response = _object(
    **_shared,
    conversation=st.sampled_from(["auto", "none"]),
    input=st.lists(_item, max_size=2),
    metadata=st.none() | st.dictionaries(_text, _text, max_size=2),
    audio=_object(output=_output),
)

_EVENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "session.update": {"session": _session},
    "input_audio_buffer.append": {"audio": st.sampled_from(["", "AAAA", "AAA=", "AA", "%"])},
    "input_audio_buffer.commit": {},
    "input_audio_buffer.clear": {},
    "output_audio_buffer.clear": {},
    "conversation.item.create": {"item": _item, "previous_item_id": st.none() | _IDS},
    "conversation.item.retrieve": {"item_id": _IDS},
    "conversation.item.delete": {"item_id": _IDS},
    "conversation.item.truncate": {
        "item_id": _IDS,
        "content_index": st.integers(-1, 1),
        "audio_end_ms": st.integers(-1, 900),
    },
    "response.create": {"response": st.none() | _response},
    "response.cancel": {"response_id": st.none() | st.sampled_from(["resp_1", "resp_3"])},
    "session.close": {},
}


def _event(kind: str, members: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[str]:
    given = _whole(**members) | _object(**members)
    ids = st.just({}) | st.fixed_dictionaries({"event_id": _SCALARS})
    return st.builds(lambda body, id: json.dumps({"type": kind, **id, **body}), given, ids)


EVENTS = st.sampled_from(sorted(_EVENTS)).flatmap(lambda kind: _event(kind, _EVENTS[kind]))
GARBAGE = st.one_of(
    st.text(max_size=20),
    st.binary(max_size=8),
    _JSON.map(json.dumps),
    st.sampled_from(
        [
            "[" * 10_000,
            '{"type":"session.update","session":{"type":"realtime","tracing":{"metadata":{"a":'
            + "[" * 500
            + "]" * 500
            + "}}}}",
            '{"type":"\\ud800"}',
            '{"type":"conversation.item.retrieve","item_id":"\\udfff"}',
            '{"type":"session.update","session":{"type":"realtime","instructions":"\\ud83d"}}',
            '{"type":"response.cancel","response_id":NaN}',
            '{"type":"session.update","session":{"type":"realtime","audio":{"output":{"speed":1e999}}}}',
            '{"type":"session.update","session":{"type":"realtime","tools":[{"type":"function","name":"f",'
            '"parameters":{"x":-1e999}}]}}',
            '{"type":"response.create"}' * 2,
            "9" * 5_000,
        ]
    ),
)


class Client(RuleBasedStateMachine):
    """A session as its driver and its stages treat it: the stages may say what real ones could say."""

    def __init__(self) -> None:
        super().__init__()
        self.problems = Problems()
        self.scope = CancelScope("session")
        self.count = 0
        self.service = RealtimeService(
            self.scope, ServiceConfig(apology="Sorry."), now=1_000.0, new_id=self.new_id
        )
        self.playout = Playout(24_000)
        self.playout.on_started = lambda tag: self.perform(self.service.playout_started(tag))
        self.playout.on_stopped = lambda heard: self.perform(self.service.playout_stopped(heard))
        self.work: list[tuple[CancelScope, Generate | Say]] = []  # what the mouth was given
        self.commits: list[str] = []  # what the ears were told
        self.turn, self.revision, self.ear = 0, 0, "quiet"
        self.untranscribed: list[tuple[int, int]] = []
        self.text: dict[CancelScope, str] = {}
        self.closed = False

    def new_id(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count if prefix == 'event' else self.count % 40}_{self.count}"

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendEvent(event):
                    self.problems.look_at(event)
                case Submit(scope, work):
                    self.work.append((scope, work))
                    hash(work)  # an immutable snapshot
                case Hear(Commit(item_id)):
                    self.commits.append(item_id)
                case Play(tag, _, audio):
                    self.playout.write(tag, audio)
                case FinishPlaying(tag):
                    self.playout.finish(tag)
                case FlushPlayout():
                    self.perform(self.service.flushed(self.playout.flush()))
                case Close():
                    self.closed = True

    def notice(self, body: object, scope: CancelScope | None = None) -> None:
        self.perform(self.service.receive(Envelope(scope or self.scope, body)))

    @initialize()
    def open(self) -> None:
        self.perform(self.service.open())

    @rule(message=EVENTS)
    def client_event(self, message: str) -> None:
        self.handle(message)

    def handle(self, message: str | bytes) -> None:
        """Effects, or one error and nothing else."""
        effects = self.service.handle(message)
        sent = [effect.event["type"] for effect in effects if isinstance(effect, SendEvent)]
        assert "error" not in sent or effects == effects[:1]
        self.perform(effects)

    @rule(message=GARBAGE)
    def garbage(self, message: str | bytes) -> None:
        self.handle(message)

    @rule(which=st.integers(0, 3), verb=st.sampled_from(["retrieve", "delete", "truncate"]))
    def event_about_an_item(self, which: int, verb: str) -> None:
        ids = [item["id"] for item in self.service.conversation._items]
        if ids:
            event = {"type": f"conversation.item.{verb}", "item_id": ids[which % len(ids)]}
            extra = {"content_index": 0, "audio_end_ms": 10} if verb == "truncate" else {}
            self.handle(json.dumps(event | extra))

    # --- the ears: like the real ones, they say what they say before they hear of what was sent ----

    @precondition(lambda self: self.ear == "quiet")
    @rule()
    def speech_starts(self) -> None:
        self.turn, self.revision, self.ear = self.turn + 1, 0, "speaking"
        self.notice(SpeechStarted(self.turn, self.turn * 1_000))

    @precondition(lambda self: self.ear == "speaking")
    @rule()
    def speech_pauses(self) -> None:
        self.revision, self.ear = self.revision + 1, "paused"
        self.untranscribed.append((self.turn, self.revision))
        self.notice(SpeechPaused(self.turn, self.revision, self.turn * 1_000 + 300))

    @precondition(lambda self: self.ear == "paused")
    @rule()
    def speech_resumes(self) -> None:
        self.ear = "speaking"
        self.notice(SpeechResumed(self.turn))

    @precondition(lambda self: self.ear == "paused")
    @rule()
    def speech_ends(self) -> None:
        self.ear = "quiet"
        self.notice(SpeechEnded(self.turn, self.turn * 1_000 + 500))

    @rule()
    def the_ears_forget(self) -> None:
        """What they do on Clear, or when turn detection is switched: nothing is said about it."""
        self.ear = "quiet"

    @precondition(lambda self: self.commits)
    @rule(audio_ms=st.sampled_from([0, 99, 100, 700]))
    def commit_arrives(self, audio_ms: int) -> None:
        if self.ear == "quiet":
            self.turn, self.revision = self.turn + 1, 0
        revision = self.revision + 1
        if audio_ms >= 100:
            self.untranscribed.append((self.turn, revision))
            self.ear = "quiet"
        self.notice(Committed(self.commits.pop(0), self.turn, revision, audio_ms))

    @precondition(lambda self: self.untranscribed)
    @rule(text=st.sampled_from(["", "hello", "hello there"]), fails=st.integers(0, 4))
    def words_arrive(self, text: str, fails: int) -> None:
        turn, revision = self.untranscribed.pop(0)
        if fails == 0:
            self.notice(TranscriptFailed(turn, revision, "the recogniser is not well"))
        else:
            self.notice(TranscriptFinal(turn, revision, text, 1.0))

    @precondition(lambda self: self.ear == "speaking")
    @rule()
    def live_words(self) -> None:
        self.notice(TranscriptDelta(self.turn, "so"))

    # --- the mouth: works on what it was given first -----------------------------------------------

    @precondition(lambda self: self.work)
    @rule(text=st.text(max_size=6))
    def text_arrives(self, text: str) -> None:
        scope, _ = self.work[0]
        self.notice(TextDelta(text), scope)
        self.text[scope] = self.text.get(scope, "") + text

    @precondition(lambda self: self.work)
    @rule()
    def sound_arrives(self) -> None:
        scope, work = self.work[0]
        if work.voice and self.text.get(scope):
            self.notice(Audio(np.ones(700, np.int16), 24_000, self.text.pop(scope)), scope)

    @precondition(lambda self: self.work)
    @rule(arguments=st.text(max_size=4))
    def call_arrives(self, arguments: str) -> None:
        self.notice(ToolCalled(ToolCall("call_1", "f", arguments)), self.work[0][0])

    @precondition(lambda self: self.work)
    @rule(reason=st.sampled_from(["stop", "length", "content_filter", "fails"]))
    def work_ends(self, reason: Any) -> None:
        scope, _ = self.work.pop(0)
        if reason == "fails":
            self.notice(Failed("llm", "the model is not well"), scope)
        else:
            self.notice(TextFinished(Finish(reason, 3, 4)), scope)
        self.notice(End(), scope)

    @precondition(lambda self: self.work)
    @rule()
    def voice_fails(self) -> None:
        scope, _ = self.work.pop(0)
        self.notice(Failed("tts", "the voice is gone"), scope)
        self.notice(End(), scope)

    @rule(n=st.sampled_from([10, 480, 2_000]))
    def caller_listens(self, n: int) -> None:
        self.playout.pull(n)

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.problems == []
        assert not self.closed

    def teardown(self) -> None:
        """All that is under way comes to its end."""
        while self.work:
            scope, _ = self.work.pop(0)
            self.notice(End(), scope)
        self.problems.finish()
        assert self.problems == []


TestClient = Client.TestCase
TestClient.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
