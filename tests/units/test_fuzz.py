"""Whatever a client sends, in whatever state the session is: effects or one error, never an exception.

The pure service is driven with client events, near-valid and garbage, between notices that the stages
could send. All that comes out is held against the schemas and the order of the protocol.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.protocol.tap import Problems
from tests.units.caller import Json
from units.messages import (
    Audio,
    Clear,
    Commit,
    Committed,
    End,
    Envelope,
    Failed,
    Finish,
    Generate,
    Listen,
    RecordingHeard,
    Say,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    StayedSilent,
    TextDelta,
    TextFinished,
    ToolCall,
    ToolCalled,
    TranscriptDelta,
    TranscriptFailed,
    TranscriptFinal,
)
from units.playout import Playout
from units.realtime.effects import (
    CallTool,
    CancelTool,
    Close,
    Effect,
    FinishPlaying,
    FlushPlayout,
    Hear,
    ListTools,
    Play,
    Recognise,
    SendAudio,
    SendEvent,
    Submit,
)
from units.realtime.servers import RemoteTool, ToolFault
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
_filter = st.none() | _object(tool_names=st.lists(_text, max_size=2), read_only=st.booleans())
_mcp = _whole(type=st.just("mcp"), server_label=st.just("a"), server_url=st.just("http://mcp/a")) | _object(
    type=st.just("mcp"),
    server_label=_text,
    server_url=st.sampled_from(["http://mcp/a", "http://mcp/b", "http://mcp:x/", "http://mcp/../a"]),
    connector_id=st.none() | _text,
    authorization=_text,
    headers=st.dictionaries(_text, _text, max_size=2),
    allowed_tools=_filter | st.lists(_text, max_size=2),
    require_approval=st.sampled_from(["always", "never"]) | _object(always=_filter, never=_filter),
    server_description=_text,
)
_shared: dict[str, st.SearchStrategy[Any]] = {
    "output_modalities": st.sampled_from([["audio"], ["text"], ["audio", "text"]]),
    "instructions": _text,
    "tools": st.lists(_tool | _mcp, max_size=2),
    "tool_choice": st.sampled_from(["auto", "none", "required"])
    | _object(type=st.just("function"), name=_text)
    | _object(type=st.just("mcp"), server_label=_text, name=st.none() | _text),
    "max_output_tokens": st.just("inf") | st.integers(1, 4_096),
    "parallel_tool_calls": st.booleans(),
    "reasoning": st.none() | _object(effort=st.just("low")),
    "prompt": st.none() | _object(id=_text, version=_text, variables=_JSON),
}
_session = _object(
    **_shared,
    model=_text,
    audio=_object(input=_input, output=_output),
    truncation=st.sampled_from(["auto", "disabled"])
    | _object(type=st.just("retention_ratio"), retention_ratio=st.floats(0, 1)),
    tracing=st.none() | st.just("auto") | _object(workflow_name=_text, metadata=_JSON),
    include=st.none() | st.just(["item.input_audio_transcription.logprobs"]),
    # The beta's.
    voice=_text,
    speed=st.floats(0.25, 1.5),
    turn_detection=_turn_detection,
    input_audio_format=st.just("pcm16"),
    modalities=st.just(["audio", "text"]),
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
    _whole(
        type=st.just("mcp_approval_response"),
        approval_request_id=st.just("mcpr_1") | _IDS,
        approve=st.booleans(),
        reason=st.none() | _text,
    ),
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
    ids: st.SearchStrategy[Json] = st.just({}) | st.fixed_dictionaries({"event_id": _SCALARS})
    return st.builds(lambda body, id: json.dumps({"type": kind, **id, **body}), given, ids)


EVENTS = st.sampled_from(sorted(_EVENTS)).flatmap(lambda kind: _event(kind, _EVENTS[kind]))
_NASTY: list[str | bytes] = [
    "",
    "null",
    b"\x00",
    b"{}",
    "{",
    "[" * 10_000,
    '{"a":' * 10_000,
    '{"type":"\\ud800"}',
    '{"type":"conversation.item.retrieve","item_id":"\\udfff"}',
    '{"type":"\ud800"}',
    '{"type":"response.cancel","response_id":NaN}',
    '{"type":"session.update","session":{"type":"realtime","audio":{"output":{"speed":1e999}}}}',
    '{"type":"session.update","session":{"type":"realtime","tracing":{"metadata":{"x":-1e999}}}}',
    '{"type":"session.update","session":{"type":"realtime","tracing":{"metadata":'
    + '{"a":' * 500
    + "1"
    + "}" * 500
    + "}}}",
    '{"type":"response.create"}' * 2,
    "9" * 5_000,
    '{"type":"session.update","session":{"type":"realtime","instructions":"' + "x" * 300_000 + '"}}',
]

GARBAGE = st.one_of(st.text(max_size=20), st.binary(max_size=8), _JSON.map(json.dumps))


_COMMON = ["conversation.item.create", "response.create", "response.create", "response.create"]


class World:
    """A session as its driver and its stages treat it; the stages say what real ones could say."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.problems = Problems()
        self.sent: list[Json] = []
        self.scope = CancelScope("session")
        self.count = 0
        self.service = RealtimeService(
            self.scope,
            ServiceConfig(
                apology="Sorry.",
                context_tokens=self.rng.choice([0, 40]),
                mcp_servers=("http://mcp",),
            ),
            now=1_000.0,
            new_id=self.new_id,
        )
        self.playout = Playout(24_000)
        self.playout.on_started = lambda tag: self.perform(self.service.playout_started(tag))
        self.playout.on_stopped = lambda heard: self.perform(self.service.playout_stopped(heard))
        self.work: list[tuple[CancelScope, Generate | Say]] = []  # what the mouth was given
        self.commits: list[str] = []  # what the ears were told
        self.recordings: list[int] = []  # what they have to recognise
        self.lists: list[str] = []  # what MCP servers were asked
        self.calls: list[str] = []
        self.turn, self.revision, self.ear = 0, 0, "quiet"
        self.told, self.detecting = False, True  # to forget, and whether to detect turns
        self.unheard: list[tuple[int, int]] = []  # turn and revision without words yet
        self.unspoken: dict[CancelScope, str] = {}
        self.closed = False
        self.sends_audio = self.rng.random() < 0.4
        self.perform(self.service.open(sends_audio=self.sends_audio))

    def new_id(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendEvent(event):
                    assert not (self.sends_audio and event["type"].startswith("output_audio_buffer."))
                    self.sent.append(event)
                    self.problems.look_at(event)
                case SendAudio(event, audio, _):
                    assert self.sends_audio
                    if audio is not None:
                        self.problems.look_at({**event, "delta": "AAAA"})
                case Submit(scope, work):
                    self.work.append((scope, work))
                    hash(work)  # an immutable snapshot
                case Hear(Clear()):
                    self.told = True
                case Hear(Listen(turn_detection=detecting)):
                    self.told |= detecting is not self.detecting
                    self.detecting = detecting
                case Hear(Commit(item_id)):
                    self.commits.append(item_id)
                case Recognise(number):
                    self.recordings.append(number)
                case ListTools(item_id):
                    self.lists.append(item_id)
                case CallTool(item_id):
                    self.calls.append(item_id)
                case CancelTool(item_id):
                    assert item_id in self.calls
                case Play(tag, _, audio):
                    assert not self.sends_audio
                    self.playout.write(tag, audio)
                case FinishPlaying(tag):
                    self.playout.finish(tag)
                case FlushPlayout():
                    self.perform(self.service.flushed(self.playout.flush()))
                case Close():
                    self.closed = True

    def handle(self, message: str | bytes) -> None:
        """Effects, or one error and nothing else."""
        effects = self.service.handle(message)
        errors = [each for each in effects if isinstance(each, SendEvent) and each.event["type"] == "error"]
        assert not errors or effects == errors[:1]
        self.perform(effects)

    def notice(self, body: object, scope: CancelScope | None = None) -> None:
        self.perform(self.service.receive(Envelope(scope or self.scope, body)))

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choice(self.steps())()
            assert self.problems == []
            assert not self.closed
        while self.work:
            scope, _ = self.work.pop(0)
            self.notice(End(), scope)
        self.problems.finish()
        assert self.problems == []

    def steps(self) -> list[Callable[[], None]]:
        """What can happen now, the likelier the more often it is there."""
        ears = {
            "quiet": [self.speech_starts],
            "speaking": [self.speech_pauses, self.live_words],
            "paused": [self.speech_resumes, self.speech_ends],
        }
        return [
            *[self.client_event] * 6,
            self.silence_passes,
            *ears[self.ear] * 2,
            *[self.ears_forget] * self.told,
            *[self.commit_arrives] * 2 * bool(self.commits),
            *[self.words_arrive] * 3 * bool(self.unheard),
            *[self.recording_is_heard] * 2 * bool(self.recordings),
            *[self.text_arrives, self.sound_arrives, self.sound_arrives, self.work_ends]
            * 3
            * bool(self.work),
            *[self.call_arrives, self.voice_fails] * bool(self.work),
            *[self.tools_are_listed] * 2 * bool(self.lists),
            *[self.tool_returns] * bool(self.calls),
            *[self.caller_listens] * 3,
        ]

    # --- the client ------------------------------------------------------------------------------

    def client_event(self) -> None:
        event = {"type": self.rng.choice([*_EVENTS, *_COMMON]), **self.rng.choice([{}, {"event_id": "mine"}])}
        event |= getattr(self, event["type"].replace(".", "_"), dict)()
        if self.rng.random() < 0.25:
            self.spoil(event)
        self.handle(json.dumps(event))

    def spoil(self, value: Any) -> None:
        """Change something anywhere in a JSON value."""
        if not value or self.rng.random() < 0.3 or not isinstance(value, dict | list):
            return
        key = self.rng.choice([*value]) if isinstance(value, dict) else self.rng.randrange(len(value))
        if isinstance(value[key], dict | list) and self.rng.random() < 0.7:
            self.spoil(value[key])
        elif isinstance(value, dict) and self.rng.random() < 0.4:
            del value[key]
        elif isinstance(value, dict) and self.rng.random() < 0.3:
            value["x"] = 1
        else:
            value[key] = self.rng.choice(
                [None, True, -1, 3.5, "", "x", [], {}, [None], {"type": "x"}, 10**30]
            )

    def item_id(self) -> str:
        known = [event["item"]["id"] for event in self.sent if event["type"] == "conversation.item.added"]
        return str(self.rng.choice([*known[-6:], *known[-2:], "unknown"]))

    def session_update(self) -> Json:
        detection = {
            "type": self.rng.choice(["server_vad", "semantic_vad"]),
            "create_response": self.rng.random() < 0.8,
            "interrupt_response": self.rng.random() < 0.6,
        }
        if detection["type"] == "server_vad":
            detection["idle_timeout_ms"] = self.rng.choice([None, 5_000])
        audio = {
            "input": {
                "turn_detection": self.rng.choice([detection, detection, detection, None]),
                "transcription": self.rng.choice([None, {"model": "any"}, {"model": "any"}]),
            }
        }
        changes: list[Json] = [
            {"audio": audio},
            {"audio": audio},
            {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
            {"tools": [self.mcp("a"), self.mcp("b"), {"type": "function", "name": "f"}]},
            {"tools": [self.mcp("a")]},
            {"output_modalities": [self.rng.choice(["audio", "audio", "audio", "text"])]},
            {"instructions": "Be brief.", "max_output_tokens": 100, "tracing": "auto"},
        ]
        return {"session": {"type": "realtime", **self.rng.choice(changes)}}

    def mcp(self, label: str) -> Json:
        approval = self.rng.choice(["never", "always", {"never": {"tool_names": ["f"]}}])
        server = {"type": "mcp", "server_label": label, "server_url": f"http://mcp/{label}"}
        return {**server, "require_approval": approval}

    def input_audio_buffer_append(self) -> Json:
        return {"audio": "AAAA"}

    def conversation_item_create(self) -> Json:
        items: list[Json] = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ho"}]},
            {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
            self.approval(),
            self.approval(),
            {"type": "message", "id": self.item_id(), "role": "system", "content": []},
            {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAA="}]},
        ]
        place = self.rng.choice([{}, {}, {"previous_item_id": self.rng.choice([self.item_id(), "root"])}])
        return {"item": self.rng.choice(items), **place}

    def approval(self) -> Json:
        items = [event["item"] for event in self.sent if event["type"] == "response.output_item.done"]
        asked = [item["id"] for item in items if item["type"] == "mcp_approval_request"]
        request_id = self.rng.choice([*asked[-2:], "unknown"])
        approve = self.rng.random() < 0.6
        return {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": approve}

    def conversation_item_retrieve(self) -> Json:
        return {"item_id": self.item_id()}

    conversation_item_delete = conversation_item_retrieve

    def conversation_item_truncate(self) -> Json:
        return {"item_id": self.item_id(), "content_index": 0, "audio_end_ms": 10}

    def response_create(self) -> Json:
        text = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        sound = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAA="}]}
        overrides: list[Json] = [
            {"input": [sound]},
            {},
            {"output_modalities": ["text"], "metadata": {"a": "b"}},
            {"conversation": "none", "output_modalities": ["text"]},
            {"tools": [self.mcp("c")]},
            {"conversation": "none", "input": [text, {"type": "item_reference", "id": self.item_id()}]},
        ]
        return {"response": self.rng.choice(overrides)}

    def response_cancel(self) -> Json:
        known = [event["response"]["id"] for event in self.sent if event["type"] == "response.created"]
        return self.rng.choice([{}, {}, {"response_id": self.rng.choice(["unknown", *known[-2:]])}])

    # --- the ears say what they say before they hear of what was sent to them ----------------------

    def speech_starts(self) -> None:
        self.turn, self.revision, self.ear = self.turn + 1, 0, "speaking"
        self.notice(SpeechStarted(self.turn, self.turn * 1_000))

    def speech_pauses(self) -> None:
        self.revision, self.ear = self.revision + 1, "paused"
        self.unheard.append((self.turn, self.revision))
        self.notice(SpeechPaused(self.turn, self.revision, self.turn * 1_000 + 300))

    def speech_resumes(self) -> None:
        self.ear = "speaking"
        self.notice(SpeechResumed(self.turn))

    def speech_ends(self) -> None:
        self.ear = "quiet"
        self.notice(SpeechEnded(self.turn, self.turn * 1_000 + 500))

    def ears_forget(self) -> None:
        """What they do on Clear, or when turn detection is switched: nothing is said about it."""
        self.told = False
        self.ear = "quiet"

    def silence_passes(self) -> None:
        self.notice(StayedSilent(0, 5_000))

    def live_words(self) -> None:
        self.notice(TranscriptDelta(self.turn, "so"))

    def commit_arrives(self) -> None:
        audio_ms = self.rng.choice([0, 99, 100, 700])
        if self.ear == "quiet":
            self.turn, self.revision = self.turn + 1, 0
        if audio_ms >= 100:
            self.unheard.append((self.turn, self.revision + 1))
            self.ear = "quiet"
        self.notice(Committed(self.commits.pop(0), self.turn, self.revision + 1, audio_ms))

    def words_arrive(self) -> None:
        turn, revision = self.unheard.pop(0)
        if self.rng.random() < 0.2:
            self.notice(TranscriptFailed(turn, revision, "the recogniser is not well"))
        else:
            self.notice(TranscriptFinal(turn, revision, self.rng.choice(["", "hello", "hello there"]), 1.0))

    def recording_is_heard(self) -> None:
        failure = self.rng.choice([None, None, "the recogniser is not well"])
        self.notice(RecordingHeard(self.recordings.pop(0), "" if failure else "good day", 1.0, failure))

    # --- the mouth works on what it was given first ------------------------------------------------

    def text_arrives(self) -> None:
        (scope, _), text = self.work[0], self.rng.choice(["a", "b c", " d", "é"])
        self.unspoken[scope] = self.unspoken.get(scope, "") + text
        self.notice(TextDelta(text), scope)

    def sound_arrives(self) -> None:
        scope, work = self.work[0]
        if scope not in self.unspoken:
            self.text_arrives()
        if work.voice:
            samples = np.ones(self.rng.choice([0, 700]), np.int16)
            self.notice(Audio(samples, 24_000, self.unspoken.pop(scope)), scope)

    def call_arrives(self) -> None:
        scope, work = self.work[0]
        tools = [tool.name for tool in work.tools] if isinstance(work, Generate) else []
        self.notice(ToolCalled(ToolCall("call_1", self.rng.choice(["f", *tools]), "{}")), scope)

    def tools_are_listed(self) -> None:
        tools = (RemoteTool("f", read_only=True), RemoteTool("g.h", "Does it."))
        answer = self.rng.choice([tools, tools, (), ToolFault("http_error", "gone", 502)])
        self.perform(self.service.tools_listed(self.lists.pop(0), answer))

    def tool_returns(self) -> None:
        """Perhaps of a call that was cancelled: a result may be on its way."""
        outcome = self.rng.choice(["sunny", "", ToolFault("tool_execution_error", "no")])
        self.perform(self.service.tool_returned(self.calls.pop(0), outcome))

    def work_ends(self) -> None:
        scope, _ = self.work.pop(0)
        if self.rng.random() < 0.2:
            self.notice(Failed("llm", "the model is not well"), scope)
        else:
            reasons: list[Any] = ["stop", "stop", "length", "content_filter"]
            self.notice(TextFinished(Finish(self.rng.choice(reasons), 3, 4)), scope)
        self.notice(End(), scope)

    def voice_fails(self) -> None:
        scope, _ = self.work.pop(0)
        self.notice(Failed("tts", "the voice is gone"), scope)
        self.notice(End(), scope)

    def caller_listens(self) -> None:
        self.playout.pull(self.rng.choice([10, 480, 2_000]))


_SETTINGS = settings(suppress_health_check=[HealthCheck.too_slow])


@settings(_SETTINGS, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_sessions_keep_to_the_protocol_whatever_happens_in_whatever_order(seed: int) -> None:
    World(seed).walk(150)


def test_random_sessions_meet_every_event_and_error() -> None:
    """The walks are worth something."""
    counts: Counter[str] = Counter()
    for seed in range(60):
        world = World(seed)
        world.walk(150)
        counts.update(event["type"] for event in world.sent)
        counts.update(event["error"]["code"] for event in world.sent if event["type"] == "error")
    assert {*EXPECTED} <= {*counts}


EXPECTED = (
    "session.updated",
    "conversation.item.deleted",
    "conversation.item.truncated",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.completed",
    "conversation.item.input_audio_transcription.failed",
    "output_audio_buffer.started",
    "output_audio_buffer.stopped",
    "output_audio_buffer.cleared",
    "response.output_text.done",
    "response.output_audio_transcript.done",
    "response.function_call_arguments.done",
    "mcp_list_tools.completed",
    "mcp_list_tools.failed",
    "response.mcp_call_arguments.done",
    "response.mcp_call.in_progress",
    "response.mcp_call.completed",
    "response.mcp_call.failed",
    "conversation_already_has_active_response",
    "input_audio_buffer.timeout_triggered",
    "input_audio_buffer_commit_empty",
    "response_cancel_not_active",
    "invalid_value",
    "invalid_type",
    "missing_required_parameter",
    "unknown_parameter",
)


def busy() -> World:
    """A session in the middle of everything."""
    world = World()
    world.handle(json.dumps({"type": "conversation.item.create", "item": _HELLO | {"id": "a"}}))
    world.handle(json.dumps({"type": "response.create"}))
    world.text_arrives()
    world.sound_arrives()
    world.caller_listens()
    return world


_HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


@settings(_SETTINGS, max_examples=150)
@given(messages=st.lists(EVENTS | GARBAGE, min_size=1, max_size=4))
def test_whatever_a_client_sends_gives_effects_or_one_error(messages: list[str | bytes]) -> None:
    world = busy()
    for message in messages:
        world.handle(message)
    assert world.problems == []


@pytest.mark.parametrize("message", _NASTY)
def test_what_is_not_an_event_gives_exactly_one_error(message: str | bytes) -> None:
    world = busy()
    before = len(world.sent)
    world.handle(message)
    assert [event["type"] for event in world.sent[before:]] == ["error"]
    assert world.problems == []
