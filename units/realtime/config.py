"""The session's configuration, as it stands on the wire, and what a response makes of it.

An update is all or nothing. Only present fields change; objects merge, lists replace, null clears what
may be null. A changed ``turn_detection.type`` starts again from that type's defaults.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from units.messages import Eagerness, Listen, Tool, Voice
from units.realtime.errors import ProtocolError, missing, wrong_value
from units.realtime.schema import (
    Check,
    anything,
    array,
    boolean,
    by_type,
    either,
    fields,
    integer,
    nullable,
    number,
    one_of,
    string,
)
from units.realtime.servers import SECRETS, RemoteTool, Server, check_allowed, mcp_tool

Wire = dict[str, Any]

RETENTION = 0.8
"""Part of the room for a conversation that is used after it was shortened, if the client does not say."""

SOFT_END_MS = 96
"""Silence after which an utterance is transcribed and answered on speculation."""

_TURN_DETECTION: dict[str, Wire] = {
    "server_vad": {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
        "idle_timeout_ms": None,
        "create_response": True,
        "interrupt_response": True,
    },
    "semantic_vad": {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    },
}

_EAGERNESS = {
    "low": Eagerness(threshold=0.7, finished_ms=500, unfinished_ms=8_000),
    "medium": Eagerness(threshold=0.5, finished_ms=300, unfinished_ms=4_000),
    "high": Eagerness(threshold=0.3, finished_ms=300, unfinished_ms=2_000),
}
_EAGERNESS["auto"] = _EAGERNESS["medium"]
"""When a turn is over under semantic_vad; the longest waits are those of the hosted service."""

_SEMANTIC_SILENCE_MS = {"low": 1000, "medium": 600, "high": 300, "auto": 600}
"""Silence that ends a turn under semantic_vad where no model judges it."""

MOST_TOOLS = 128
MOST_SERVERS = 16
"""What ``tools`` may hold, and how many of the former a model is offered at most."""

_TRANSCRIPTION: Wire = {"model": "whisper-1", "language": None, "prompt": None}

_tool = by_type(
    {
        "function": fields(
            {
                "type": anything,
                "name": string(64),
                "description": nullable(string()),
                "parameters": nullable(fields({}, open=True)),
                "strict": nullable(boolean),
            },
            required=("name",),
        ),
        "mcp": mcp_tool,
    }
)

_tool_choice = either(
    fields({"type": one_of("function"), "name": string(64)}, required=("type", "name")),
    fields(
        {"type": one_of("mcp"), "server_label": string(64), "name": nullable(string(256))},
        required=("type", "server_label"),
    ),
    one_of("auto", "none", "required"),
)

_pcm = fields({"type": anything, "rate": integer(24_000, 24_000)})
_format = by_type(
    {
        "audio/pcm": _pcm,
        "audio/pcmu": fields({"type": anything}),
        "audio/pcma": fields({"type": anything}),
    }
)

_turn_detection = by_type(
    {
        "server_vad": fields(
            {
                "type": anything,
                "threshold": number(0.0, 1.0),
                "prefix_padding_ms": integer(0, 5_000),
                "silence_duration_ms": integer(0, 10_000),
                "idle_timeout_ms": nullable(integer(5_000, 30_000)),
                "create_response": boolean,
                "interrupt_response": boolean,
            }
        ),
        "semantic_vad": fields(
            {
                "type": anything,
                "eagerness": one_of("low", "medium", "high", "auto"),
                "create_response": boolean,
                "interrupt_response": boolean,
            }
        ),
    }
)

_transcription = fields(
    {
        "model": string(256),
        "language": nullable(string(16)),
        "prompt": nullable(string(4_096)),
        "delay": nullable(one_of("minimal", "low", "medium", "high", "xhigh")),
        "keywords": nullable(array(string(256))),
        "languages": nullable(array(string(16))),
    }
)

_noise_reduction = fields({"type": one_of("near_field", "far_field"), "strength": nullable(number(0.0, 1.0))})

_reasoning = fields({"effort": nullable(one_of("minimal", "low", "medium", "high", "xhigh"))})

_prompt = fields(
    {"id": string(256), "version": nullable(string(256)), "variables": nullable(fields({}, open=True))},
    required=("id",),
)

_truncation = either(
    fields(
        {
            "type": one_of("retention_ratio"),
            "retention_ratio": number(0.0, 1.0),
            "token_limits": nullable(fields({"post_instructions": nullable(integer(0, 10_000_000))})),
        },
        required=("type", "retention_ratio"),
    ),
    one_of("auto", "disabled"),
)

_tracing = either(
    fields(
        {
            "workflow_name": nullable(string(1_024)),
            "group_id": nullable(string(1_024)),
            "metadata": nullable(fields({}, open=True)),
        }
    ),
    one_of("auto"),
)

_voice = either(fields({"id": string(256)}, required=("id",)), string(256))


def _modalities(value: Any, path: str) -> Any:
    checked = array(one_of("audio", "text"))(value, path)
    if len(checked) != 1:
        raise wrong_value(path, checked, "['audio'] or ['text']")
    return checked


def _tools(value: Any, path: str) -> Any:
    checked = array(_tool, MOST_TOOLS)(value, path)
    names = [(member := _NAMED_BY[tool["type"]], tool[member]) for tool in checked]
    for index, (member, name) in enumerate(names):
        if (member, name) in names[:index]:
            message = f"Invalid '{path}': there are two tools named '{name}'."
            raise ProtocolError("invalid_value", message, f"{path}[{index}].{member}")
    if sum(member == "server_label" for member, _ in names) > MOST_SERVERS:
        message = f"Invalid '{path}': at most {MOST_SERVERS} MCP servers."
        raise ProtocolError("array_above_max_length", message, path)
    return checked


_NAMED_BY = {"function": "name", "mcp": "server_label"}


_max_output_tokens = either(one_of("inf"), integer(1, 4_096))

_output = fields({"format": _format, "voice": _voice, "speed": number(0.25, 1.5)})

_SHARED: dict[str, Check] = {
    "output_modalities": _modalities,
    "instructions": string(),
    "tools": _tools,
    "tool_choice": _tool_choice,
    "max_output_tokens": _max_output_tokens,
    "parallel_tool_calls": nullable(boolean),
    "reasoning": nullable(_reasoning),
    "prompt": nullable(_prompt),
}

LOCKABLE = frozenset(
    {
        "instructions",
        "max_output_tokens",
        "output_modalities",
        "parallel_tool_calls",
        "tool_choice",
        "tools",
        "truncation",
    }
)
"""Settings that an operator can keep from clients. What they send for them is passed over, since stock
clients send whole configurations, all of which a refusal would throw away."""

_SERVER_OWNED = ("id", "object", "expires_at", "model")
"""Accepted and ignored, since stock clients send them back."""

_session = fields(
    {
        **_SHARED,
        "type": anything,
        "audio": fields(
            {
                "input": fields(
                    {
                        "format": _format,
                        "noise_reduction": nullable(_noise_reduction),
                        "transcription": nullable(_transcription),
                        "turn_detection": nullable(_turn_detection),
                    }
                ),
                "output": _output,
            }
        ),
        "truncation": _truncation,
        "tracing": nullable(_tracing),
        "include": nullable(array(one_of("item.input_audio_transcription.logprobs"))),
        **dict.fromkeys(_SERVER_OWNED, anything),
    }
)


_transcription_session = fields(
    {
        "type": anything,
        "audio": fields(
            {
                "input": fields(
                    {
                        "format": _format,
                        "noise_reduction": nullable(_noise_reduction),
                        "transcription": _transcription,
                        "turn_detection": nullable(_turn_detection),
                    }
                )
            }
        ),
        "include": nullable(array(one_of("item.input_audio_transcription.logprobs"))),
        **dict.fromkeys(_SERVER_OWNED, anything),
    }
)

_SCHEMAS = {"realtime": _session, "transcription": _transcription_session}
_ANSWERING = ("create_response", "interrupt_response", "idle_timeout_ms")
"""Settings of turn detection that mean nothing where there are no answers."""
_TRANSCRIPTION_SILENCE_MS = 200


def _metadata(value: Any, path: str) -> Any:
    if len(fields({}, open=True)(value, path)) > 16:
        raise ProtocolError("object_above_max_properties", f"Invalid '{path}': at most 16 pairs.", path)
    for key, text in value.items():
        string(64)(key, f"{path}.{key[:64]}")
        string(512)(text, f"{path}.{key[:64]}")
    return value


_response = fields(
    {
        **_SHARED,
        "audio": fields({"output": _output}),
        "conversation": one_of("auto", "none"),
        "input": array(anything),
        "metadata": nullable(_metadata),
    }
)


@dataclass(frozen=True, slots=True)
class ResponseConfig:
    """What one response is made with: the session's settings under those of ``response.create``."""

    instructions: str
    tools: tuple[Tool, ...]
    tool_choice: str
    parallel_tool_calls: bool
    max_output_tokens: int | None
    voice: Voice | None
    modalities: tuple[str, ...]
    output: Wire
    metadata: dict[str, str] | None = None
    out_of_band: bool = False
    input: tuple[Wire, ...] | None = None
    servers: tuple[Server, ...] = ()
    wanted: tuple[str, str] | None = None
    """Label and tool name, or "" for any, that a ``tool_choice`` of type ``mcp`` asks for."""
    remote: Mapping[str, tuple[Server, RemoteTool]] = field(default_factory=dict)
    """Which of ``tools`` are a server's, by the name under which the model knows them."""

    @property
    def spoken(self) -> bool:
        return self.voice is not None


class SessionConfig:
    """An immutable session configuration.

    ``mcp_servers``: where clients may find MCP servers. ``locked``: what clients cannot change.
    """

    def __init__(self, wire: Wire, mcp_servers: tuple[str, ...] = (), locked: tuple[str, ...] = ()) -> None:
        self._wire = wire
        self._mcp_servers = mcp_servers
        self._locked = locked

    @classmethod
    def default(
        cls,
        *,
        id: str,
        model: str,
        instructions: str,
        voice: str,
        expires_at: int,
        mcp_servers: tuple[str, ...] = (),
        locked: tuple[str, ...] = (),
    ) -> SessionConfig:
        return cls(
            {
                "type": "realtime",
                "object": "realtime.session",
                "id": id,
                "model": model,
                "output_modalities": ["audio"],
                "instructions": instructions,
                "tools": [],
                "tool_choice": "auto",
                "max_output_tokens": "inf",
                "tracing": None,
                "truncation": "auto",
                "prompt": None,
                "expires_at": expires_at,
                "audio": {
                    "input": {
                        "format": {"type": "audio/pcm", "rate": 24_000},
                        "transcription": None,
                        "noise_reduction": None,
                        "turn_detection": dict(_TURN_DETECTION["server_vad"]),
                    },
                    "output": {
                        "format": {"type": "audio/pcm", "rate": 24_000},
                        "voice": voice,
                        "speed": 1.0,
                    },
                },
                "include": None,
            },
            mcp_servers,
            locked,
        )

    def wire(self) -> Wire:
        """A copy of the whole effective session, without what is none of the client's business: what only
        MCP servers are to know, and instructions that are locked."""
        wire = copy.deepcopy(self._wire)
        if "instructions" in self._locked and "instructions" in wire:
            wire["instructions"] = ""
        for tool in wire.get("tools", ()):
            for name in SECRETS:
                tool.pop(name, None)
        if self.kind == "transcription" and wire["audio"]["input"]["turn_detection"]:
            for name in _ANSWERING:
                wire["audio"]["input"]["turn_detection"].pop(name, None)
        return wire

    def updated(self, patch: Any) -> SessionConfig:
        """The configuration after a ``session.update``. Raises ProtocolError, and then nothing changes."""
        check = _SCHEMAS[self.kind]
        patch = self._unlocked(patch)
        if not isinstance(patch, dict) or "type" not in patch:
            check(patch, "session")
            raise missing("session.type")
        kind = one_of(*_SCHEMAS)(patch["type"], "session.type")
        if kind != self.kind:
            message = f"Passing a {kind} session update event to a {self.kind} session is not allowed."
            raise ProtocolError("invalid_value", message, "session.type")
        checked = check(patch, "session")
        check_allowed(checked.get("tools", ()), self._mcp_servers, "session.tools")
        for name in _SERVER_OWNED:
            checked.pop(name, None)
        merged = _merge(self._wire, checked)
        output = merged["audio"].get("output", {})
        if isinstance(output.get("voice"), dict):  # echoed as a string: objects break stock clients
            output["voice"] = output["voice"]["id"]
        return SessionConfig(merged, self._mcp_servers, self._locked)

    def _unlocked(self, patch: Any) -> Any:
        """What of ``patch`` a client may change."""
        if not isinstance(patch, dict):
            return patch
        return {name: value for name, value in patch.items() if name not in self._locked}

    def check_role(self, item: Wire, path: str) -> None:
        """Raises ProtocolError for instructions in disguise: a system message where they are locked."""
        if "instructions" in self._locked and item.get("role") == "system":
            raise ProtocolError(
                "invalid_value", "Instructions are locked: system messages are not taken.", f"{path}.role"
            )

    def begun(self, patch: Any) -> SessionConfig:
        """Like :meth:`updated`, for a session that has not begun and may become one that transcribes."""
        if isinstance(patch, dict) and patch.get("type") == "transcription" and self.kind == "realtime":
            return self._transcribing().updated(patch)
        return self.updated(patch)

    def _transcribing(self) -> SessionConfig:
        sound = self._input
        detection = sound["turn_detection"]
        if detection and detection["type"] == "server_vad":
            detection = detection | {"silence_duration_ms": _TRANSCRIPTION_SILENCE_MS}
        sound = sound | {"transcription": dict(_TRANSCRIPTION), "turn_detection": detection}
        return SessionConfig(
            {
                "type": "transcription",
                "object": "realtime.transcription_session",
                "id": self._wire["id"],
                "expires_at": self._wire["expires_at"],
                "audio": {"input": sound},
                "include": None,
            },
            self._mcp_servers,
            self._locked,
        )

    @property
    def kind(self) -> str:
        """``realtime``, or ``transcription``, where nothing is ever answered."""
        return str(self._wire["type"])

    @property
    def servers(self) -> tuple[Server, ...]:
        """The MCP servers of the session."""
        return _servers(self._wire.get("tools", ()))

    @property
    def id(self) -> str:
        return str(self._wire["id"])

    @property
    def expires_at(self) -> int:
        return int(self._wire["expires_at"])

    @property
    def _input(self) -> Wire:
        wire: Wire = self._wire["audio"]["input"]
        return wire

    @property
    def voice(self) -> str:
        """The name of the voice; "" where nothing is said."""
        return str(self._wire["audio"].get("output", {}).get("voice", ""))

    @property
    def input_format(self) -> str:
        """The format of sound in events from the client."""
        return str(self._input["format"]["type"])

    @property
    def transcribes(self) -> bool:
        """Clients want to see what the caller said."""
        return self._input["transcription"] is not None

    @property
    def detects_turns(self) -> bool:
        """Else the client commits them by hand."""
        return self._input["turn_detection"] is not None

    @property
    def creates_response(self) -> bool:
        detection = self._input["turn_detection"] or {}
        return self.kind == "realtime" and bool(detection.get("create_response", False))

    @property
    def idle_timeout_ms(self) -> int:
        """Silence after which the caller is spoken to; 0: never."""
        return int((self._input["turn_detection"] or {}).get("idle_timeout_ms") or 0)

    @property
    def retention(self) -> float | None:
        """Part of the room for a conversation that is used after it was shortened; None: it must not be."""
        truncation = self._wire["truncation"]
        if truncation == "disabled":
            return None
        return RETENTION if truncation == "auto" else float(truncation["retention_ratio"])

    @property
    def most_tokens(self) -> int | None:
        """The client's own bound for a conversation, in tokens after the instructions."""
        truncation = self._wire["truncation"]
        limits = truncation.get("token_limits") if isinstance(truncation, dict) else None
        return (limits or {}).get("post_instructions")

    @property
    def interrupts(self) -> bool:
        return bool((self._input["turn_detection"] or {}).get("interrupt_response", False))

    def listen(self, *, live: bool) -> Listen:
        """How the voice activity stage is to listen. ``live``: the server can do live transcripts."""
        detection = self._input["turn_detection"]
        language = (self._input["transcription"] or {}).get("language") or ""
        if detection is None:
            return Listen(turn_detection=False, live=False, language=language)
        eagerness = None
        if detection["type"] == "semantic_vad":
            eagerness = _EAGERNESS[detection["eagerness"]]
            silence = _SEMANTIC_SILENCE_MS[detection["eagerness"]]
            detection = _TURN_DETECTION["server_vad"] | {"silence_duration_ms": silence}
        return Listen(
            threshold=detection["threshold"],
            prefix_padding_ms=detection["prefix_padding_ms"],
            soft_end_ms=min(SOFT_END_MS, detection["silence_duration_ms"]),
            silence_ms=detection["silence_duration_ms"],
            eagerness=eagerness,
            live=live and self.transcribes,
            language=language,
        )

    def response(self, overrides: Any = None) -> ResponseConfig:
        """The settings of one response. Raises ProtocolError for wrong ``response.create`` members."""
        if self.kind == "transcription":
            raise ProtocolError("invalid_value", "A transcription session has no responses.", "type")
        if isinstance(overrides, dict):  # stock clients send null for what they do not set
            overrides = {name: value for name, value in overrides.items() if value is not None}
        overrides = self._unlocked(overrides)
        checked = _response(overrides, "response") if overrides is not None else {}
        check_allowed(checked.get("tools", ()), self._mcp_servers, "response.tools")
        audio = _merge(self._wire["audio"]["output"], checked.get("audio", {}).get("output", {}))
        if isinstance(audio["voice"], dict):
            audio["voice"] = audio["voice"]["id"]
        merged = self._wire | {name: value for name, value in checked.items() if name in _SHARED}
        modalities = tuple(merged["output_modalities"])
        limit = merged["max_output_tokens"]
        given = checked.get("input")
        return ResponseConfig(
            instructions=merged["instructions"],
            tools=tuple(_as_tool(tool) for tool in merged["tools"] if tool["type"] == "function"),
            tool_choice=_choice(merged["tool_choice"]),
            parallel_tool_calls=merged.get("parallel_tool_calls") is not False,
            max_output_tokens=None if limit == "inf" else limit,
            voice=Voice(audio["voice"], audio["speed"]) if modalities == ("audio",) else None,
            modalities=modalities,
            output={"format": audio["format"], "voice": audio["voice"]},
            metadata=checked.get("metadata"),
            out_of_band=checked.get("conversation") == "none",
            input=None if given is None else tuple(given),
            servers=_servers(merged["tools"]),
            wanted=_wanted(merged["tool_choice"]),
        )


def _merge(current: Wire, patch: Wire) -> Wire:
    merged = dict(current)
    for name, value in patch.items():
        if name == "turn_detection" and value is not None:
            before = current.get(name) or {}
            base = before if before.get("type") == value["type"] else _TURN_DETECTION[value["type"]]
            merged[name] = base | value
        elif name == "transcription" and value is not None:
            merged[name] = _TRANSCRIPTION | (current.get(name) or {}) | value
        elif name == "format":
            merged[name] = {"rate": 24_000} | value if value["type"] == "audio/pcm" else value
        elif isinstance(value, dict) and isinstance(current.get(name), dict):
            merged[name] = _merge(current[name], value)
        else:
            merged[name] = copy.deepcopy(value)
    return merged


def _as_tool(wire: Wire) -> Tool:
    parameters = wire.get("parameters") or {"type": "object", "properties": {}}
    return Tool(wire["name"], wire.get("description") or "", json.dumps(parameters))


def _choice(wire: str | Wire) -> str:
    if isinstance(wire, str):
        return wire
    return "auto" if wire["type"] == "mcp" else str(wire["name"])


def _wanted(wire: str | Wire) -> tuple[str, str] | None:
    if isinstance(wire, str) or wire["type"] != "mcp":
        return None
    return wire["server_label"], wire.get("name") or ""


def _servers(tools: Iterable[Wire]) -> tuple[Server, ...]:
    return tuple(Server.of(tool) for tool in tools if tool["type"] == "mcp")
