"""session.update and the overrides of response.create: what is merged, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.protocol.validate_event import Validator
from units.messages import Listen, Tool, Voice
from units.realtime.config import SOFT_END_MS, SessionConfig
from units.realtime.errors import ProtocolError

Wire = dict[str, Any]


def session() -> SessionConfig:
    return SessionConfig.default(id="sess_1", model="m", instructions="Be kind.", voice="ada", expires_at=9)


def updated(*patches: Wire) -> Wire:
    config = session()
    for patch in patches:
        config = config.updated({"type": "realtime", **patch})
    event = {"type": "session.updated", "event_id": "event_1", "session": config.wire()}
    assert Validator().check(event) == []
    return config.wire()


def audio_in(**members: Any) -> Wire:
    return {"audio": {"input": members}}


def audio_out(**members: Any) -> Wire:
    return {"audio": {"output": members}}


VAD = {"type": "server_vad"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}

MERGED: list[tuple[list[Wire], str, Any]] = [
    ([{}], "", session().wire()),
    ([{"instructions": "Hi"}], "instructions", "Hi"),
    ([{"instructions": ""}], "instructions", ""),
    ([{"tools": [TOOL]}, {"tools": []}], "tools", []),
    ([{"tools": [TOOL]}, {"instructions": "x"}], "tools", [TOOL]),
    ([{"tool_choice": {"type": "function", "name": "f"}}], "tool_choice", {"type": "function", "name": "f"}),
    ([{"output_modalities": ["text"]}], "output_modalities", ["text"]),
    ([{"max_output_tokens": 50}, {"max_output_tokens": "inf"}], "max_output_tokens", "inf"),
    ([{"tracing": "auto"}, {"tracing": None}], "tracing", None),
    ([{"tracing": {"workflow_name": "w"}}], "tracing", {"workflow_name": "w"}),
    ([{"truncation": "disabled"}], "truncation", "disabled"),
    ([audio_out(voice="eve")], "audio.output.voice", "eve"),
    ([audio_out(voice={"id": "eve"})], "audio.output.voice", "eve"),
    ([audio_out(voice="eve")], "audio.output.speed", 1.0),
    ([audio_out(speed=1.25), audio_out(voice="eve")], "audio.output.speed", 1.25),
    ([audio_out(format={"type": "audio/pcmu"})], "audio.output.format", {"type": "audio/pcmu"}),
    ([audio_in(format={"type": "audio/pcm"})], "audio.input.format", {"type": "audio/pcm", "rate": 24_000}),
    ([audio_in(turn_detection=None)], "audio.input.turn_detection", None),
    (
        [audio_in(turn_detection=VAD | {"threshold": 0.7})],
        "audio.input.turn_detection.silence_duration_ms",
        500,
    ),
    (
        [
            audio_in(turn_detection=VAD | {"threshold": 0.7}),
            audio_in(turn_detection=VAD | {"prefix_padding_ms": 9}),
        ],
        "audio.input.turn_detection.threshold",
        0.7,
    ),
    (
        [
            audio_in(turn_detection=VAD | {"create_response": False}),
            audio_in(turn_detection={"type": "semantic_vad"}),
        ],
        "audio.input.turn_detection",
        {"type": "semantic_vad", "eagerness": "auto", "create_response": True, "interrupt_response": True},
    ),
    (
        [audio_in(turn_detection=None), audio_in(turn_detection=VAD)],
        "audio.input.turn_detection.threshold",
        0.5,
    ),
    (
        [audio_in(transcription={"model": "m1"})],
        "audio.input.transcription",
        {"model": "m1", "language": None, "prompt": None},
    ),
    (
        [audio_in(transcription={"model": "m1"}), audio_in(transcription={"language": "de"})],
        "audio.input.transcription",
        {"model": "m1", "language": "de", "prompt": None},
    ),
    (
        [audio_in(transcription={"model": "m1"}), audio_in(transcription=None)],
        "audio.input.transcription",
        None,
    ),
    (
        [audio_in(noise_reduction={"type": "near_field"})],
        "audio.input.noise_reduction",
        {"type": "near_field"},
    ),
    ([{"id": "mine", "object": "x", "expires_at": 5, "model": "other"}], "", session().wire()),
    ([{"parallel_tool_calls": True, "reasoning": {"effort": "low"}}], "reasoning.effort", "low"),
]


@pytest.mark.parametrize(("patches", "path", "value"), MERGED)
def test_an_update_changes_what_it_names_and_nothing_else(patches: list[Wire], path: str, value: Any) -> None:
    found: Any = updated(*patches)
    for name in filter(None, path.split(".")):
        found = found[name]
    assert found == value


REFUSED: list[tuple[Any, str, str]] = [
    (None, "invalid_type", "session"),
    ([], "invalid_type", "session"),
    ({}, "missing_required_parameter", "session.type"),
    ({"type": "transcription"}, "invalid_value", "session.type"),
    ({"type": "nope"}, "invalid_value", "session.type"),
    ({"type": 5}, "invalid_type", "session.type"),
    ({"x": 1}, "unknown_parameter", "session.x"),
    ({"voice": "ada"}, "unknown_parameter", "session.voice"),
    ({"instructions": 5}, "invalid_type", "session.instructions"),
    ({"instructions": None}, "invalid_type", "session.instructions"),
    ({"output_modalities": ["audio", "text"]}, "invalid_value", "session.output_modalities"),
    ({"output_modalities": []}, "invalid_value", "session.output_modalities"),
    ({"output_modalities": ["video"]}, "invalid_value", "session.output_modalities[0]"),
    ({"output_modalities": "audio"}, "invalid_type", "session.output_modalities"),
    ({"tools": [{}]}, "missing_required_parameter", "session.tools[0].type"),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "session.tools[0].name"),
    ({"tools": [{"type": "web"}]}, "invalid_value", "session.tools[0].type"),
    ({"tools": [TOOL, TOOL]}, "invalid_value", "session.tools[1].name"),
    ({"tools": [TOOL | {"function": {}}]}, "unknown_parameter", "session.tools[0].function"),
    ({"tools": [TOOL | {"name": "n" * 65}]}, "string_above_max_length", "session.tools[0].name"),
    ({"tools": [TOOL | {"parameters": []}]}, "invalid_type", "session.tools[0].parameters"),
    ({"tools": None}, "invalid_type", "session.tools"),
    ({"tools": [TOOL] * 129}, "array_above_max_length", "session.tools"),
    ({"tool_choice": "maybe"}, "invalid_value", "session.tool_choice"),
    ({"max_output_tokens": 0}, "integer_below_min_value", "session.max_output_tokens"),
    ({"max_output_tokens": 4_097}, "integer_above_max_value", "session.max_output_tokens"),
    ({"max_output_tokens": True}, "invalid_type", "session.max_output_tokens"),
    (
        audio_in(format={"type": "audio/pcm", "rate": 16_000}),
        "integer_below_min_value",
        "session.audio.input.format.rate",
    ),
    (audio_in(format={"type": "audio/mp3"}), "invalid_value", "session.audio.input.format.type"),
    (audio_in(format={}), "missing_required_parameter", "session.audio.input.format.type"),
    (audio_in(x=1), "unknown_parameter", "session.audio.input.x"),
    (audio_in(turn_detection={}), "missing_required_parameter", "session.audio.input.turn_detection.type"),
    (
        audio_in(turn_detection={"type": "psychic"}),
        "invalid_value",
        "session.audio.input.turn_detection.type",
    ),
    (
        audio_in(turn_detection=VAD | {"threshold": 1.5}),
        "decimal_above_max_value",
        "session.audio.input.turn_detection.threshold",
    ),
    (
        audio_in(turn_detection=VAD | {"eagerness": "low"}),
        "unknown_parameter",
        "session.audio.input.turn_detection.eagerness",
    ),
    (
        audio_in(turn_detection=VAD | {"idle_timeout_ms": 10}),
        "integer_below_min_value",
        "session.audio.input.turn_detection.idle_timeout_ms",
    ),
    (audio_in(transcription={"delay": "long"}), "invalid_value", "session.audio.input.transcription.delay"),
    (audio_in(noise_reduction={"type": "x"}), "invalid_value", "session.audio.input.noise_reduction.type"),
    (audio_out(speed=2), "decimal_above_max_value", "session.audio.output.speed"),
    (audio_out(speed=0), "decimal_below_min_value", "session.audio.output.speed"),
    (audio_out(voice=5), "invalid_type", "session.audio.output.voice"),
    ({"audio": None}, "invalid_type", "session.audio"),
    ({"tracing": 5}, "invalid_type", "session.tracing"),
    ({"truncation": None}, "invalid_type", "session.truncation"),
    ({"prompt": {}}, "missing_required_parameter", "session.prompt.id"),
    ({"include": ["x"]}, "invalid_value", "session.include[0]"),
    ({"parallel_tool_calls": "yes"}, "invalid_type", "session.parallel_tool_calls"),
]


@pytest.mark.parametrize(("patch", "code", "param"), REFUSED)
def test_a_wrong_update_is_refused_whole_and_names_what_is_wrong(patch: Any, code: str, param: str) -> None:
    if isinstance(patch, dict) and patch:
        patch = {"type": "realtime", "tracing": "auto", **patch}
    config, before = session(), copy.deepcopy(patch)
    with pytest.raises(ProtocolError) as caught:
        config.updated(patch)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert config.wire() == session().wire()
    assert patch == before


def test_a_session_shares_nothing_with_what_it_was_given_or_gives() -> None:
    tools = [copy.deepcopy(TOOL)]
    config = session().updated({"type": "realtime", "tools": tools})
    tools[0]["name"] = "changed"
    config.wire()["tools"][0]["name"] = "changed too"
    assert config.wire()["tools"][0]["name"] == "f"


def listen(**turn_detection: Any) -> Listen:
    patch = {"type": "realtime", **audio_in(turn_detection=turn_detection or None)}
    return session().updated(patch).listen(live=True)


def test_the_ears_are_told_how_to_listen() -> None:
    assert session().listen(live=True) == Listen(soft_end_ms=SOFT_END_MS, live=False)
    assert listen(type="server_vad", silence_duration_ms=900, threshold=0.3) == Listen(
        threshold=0.3, silence_ms=900, soft_end_ms=SOFT_END_MS, live=False
    )
    assert listen(type="server_vad", silence_duration_ms=90).soft_end_ms == 90
    assert not listen().turn_detection


def test_only_semantic_vad_has_the_end_of_a_turn_judged() -> None:
    assert session().listen(live=True).eagerness is None
    assert listen().eagerness is None
    semantic = listen(type="semantic_vad")
    assert semantic.eagerness is not None
    assert semantic.soft_end_ms == SOFT_END_MS < semantic.eagerness.finished_ms
    assert semantic == listen(type="semantic_vad", eagerness="auto")
    assert semantic == listen(type="semantic_vad", eagerness="medium")


def test_the_more_eager_the_sooner_a_turn_is_over() -> None:
    found = [listen(type="semantic_vad", eagerness=each) for each in ("low", "medium", "high")]
    assert [each.silence_ms for each in found] == [1000, 600, 300]
    low, medium, high = (each.eagerness for each in found if each.eagerness)
    assert (low.unfinished_ms, medium.unfinished_ms, high.unfinished_ms) == (8_000, 4_000, 2_000)
    assert low.finished_ms > medium.finished_ms >= high.finished_ms
    assert low.threshold > medium.threshold > high.threshold


def test_live_transcripts_are_made_for_those_who_want_transcripts() -> None:
    config = session().updated({"type": "realtime", **audio_in(transcription={"language": "de"})})
    assert config.listen(live=True).live
    assert config.listen(live=True).language == "de"
    assert not config.listen(live=False).live


def test_manual_turns_neither_answer_nor_interrupt() -> None:
    config = session().updated({"type": "realtime", **audio_in(turn_detection=None)})
    assert (config.creates_response, config.interrupts) == (False, False)
    assert (session().creates_response, session().interrupts) == (True, True)


def test_a_response_is_made_with_the_sessions_settings() -> None:
    config = session().updated({"type": "realtime", "tools": [TOOL]}).response()
    assert config.instructions == "Be kind."
    assert config.tools == (Tool("f", "", '{"type": "object"}'),)
    assert (config.tool_choice, config.max_output_tokens, config.voice) == ("auto", None, Voice("ada", 1.0))
    assert (config.spoken, config.out_of_band, config.input) == (True, False, None)


def test_a_response_may_have_settings_of_its_own() -> None:
    config = session().response(
        {
            "instructions": "Be brief.",
            "output_modalities": ["text"],
            "tool_choice": {"type": "function", "name": "f"},
            "max_output_tokens": 7,
            "conversation": "none",
            "input": [],
            "metadata": {"a": "b"},
            "audio": {"output": {"voice": {"id": "eve"}}},
        }
    )
    assert (config.instructions, config.tool_choice, config.max_output_tokens) == ("Be brief.", "f", 7)
    assert (config.spoken, config.out_of_band, config.input) == (False, True, ())
    assert config.metadata == {"a": "b"}
    assert config.output["voice"] == "eve"


@pytest.mark.parametrize(
    ("overrides", "code", "param"),
    [
        ([], "invalid_type", "response"),
        ({"x": 1}, "unknown_parameter", "response.x"),
        ({"type": "realtime"}, "unknown_parameter", "response.type"),
        ({"conversation": "mine"}, "invalid_value", "response.conversation"),
        ({"input": {}}, "invalid_type", "response.input"),
        ({"metadata": {"a": 1}}, "invalid_type", "response.metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "string_above_max_length", "response.metadata.a"),
        ({"metadata": {"k" * 65: "x"}}, "string_above_max_length", f"response.metadata.{'k' * 64}"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "object_above_max_properties", "response.metadata"),
        ({"audio": {"input": {}}}, "unknown_parameter", "response.audio.input"),
    ],
)
def test_wrong_overrides_are_refused(overrides: Any, code: str, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        session().response(overrides)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_parallel_calls_are_allowed_unless_the_client_forbids_them() -> None:
    forbidden = session().updated({"type": "realtime", "parallel_tool_calls": False})
    assert session().response().parallel_tool_calls
    assert not forbidden.response().parallel_tool_calls
    assert forbidden.response({"parallel_tool_calls": True}).parallel_tool_calls


@pytest.mark.parametrize("detection", [None, {"type": "semantic_vad"}, {"type": "server_vad"}])
def test_a_session_that_transcribes_keeps_how_turns_are_found(detection: Wire | None) -> None:
    begun = session().begun({"type": "realtime", **audio_in(turn_detection=detection)})
    wire = begun.begun({"type": "transcription"}).wire()
    assert (wire["audio"]["input"]["turn_detection"] or {}).get("type") == (detection or {}).get("type")
    event = {"type": "session.created", "event_id": "event_1", "session": wire}
    assert Validator().check(event) == []
