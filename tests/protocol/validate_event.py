"""Validate Realtime events against ``events.json``: the models of the openai package as JSON Schemas, what
the stock JavaScript client demands (its zod schemas), and rules that neither of them states.

A member that is missing and one that nobody knows are both problems.

    validator = Validator()
    validator.check(event)  # -> [] or a list of problems
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}

_ITEM_NEEDS = {
    "message": ("id", "role", "status", "content"),
    "function_call": ("id", "call_id", "name", "arguments", "status"),
    "function_call_output": ("id", "call_id", "output"),
    "mcp_list_tools": ("id", "server_label", "tools"),
    "mcp_call": ("id", "server_label", "name", "arguments"),
    "mcp_approval_request": ("id", "server_label", "name", "arguments"),
    "mcp_approval_response": ("id", "approval_request_id", "approve"),
}

_RESPONSE_NEEDS = (
    "id",
    "object",
    "status",
    "status_details",
    "output",
    "conversation_id",
    "output_modalities",
    "max_output_tokens",
    "audio",
    "usage",
    "metadata",
)

_USAGE_NEEDS = (
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "input_token_details",
    "output_token_details",
)


_SESSION_NEEDS = ("type", "object", "id", "expires_at", "audio", "include")
_REALTIME_NEEDS = (
    "model",
    "output_modalities",
    "instructions",
    "tools",
    "tool_choice",
    "max_output_tokens",
    "tracing",
    "truncation",
    "prompt",
)
_INPUT_NEEDS = ("format", "transcription", "noise_reduction", "turn_detection")
_OUTPUT_NEEDS = ("format", "voice", "speed")

_CAPTURED = {
    f"session.{verb}.session.{name}"
    for verb in ("created", "updated")
    for name in ("object", "id", "expires_at")
}
"""Sent by the hosted service, and not in the models."""

_MCP_ITEMS = {
    "mcp_call": ("object", "status"),
    "mcp_approval_request": ("object", "status"),
    "mcp_approval_response": ("object", "status"),
    "mcp_list_tools": ("object", "status", "error"),
}
"""What items have that are not in the models: all items but these have the first two, and the agents SDK
needs ``status``; ``error`` says why there is no list, and the SDK knows it."""


class Validator:
    """Checks one event at a time; see :class:`tests.protocol.order.OrderChecker` for their order."""

    def __init__(self) -> None:
        self._spec = _load()

    def check(self, event: Json, direction: str = "server", transport: str | None = None) -> list[str]:
        """Problems of ``event``; ``direction`` is ``server`` or ``client``, ``transport`` a name of the
        specification, such as ``websocket``, on which the event must be allowed."""
        kind = event.get("type")
        spec = self._spec[f"{direction}_events"].get(kind)
        if spec is None:
            return [f"unknown {direction} event type {kind!r}"]
        problems: list[str] = []
        _check(event, spec["schema"], spec["schema"], str(kind), problems, strict=True)
        if direction == "server":
            problems += _server_problems(event, spec, problems)
        if transport and transport not in spec["transports"]:
            problems.append(f"{kind}: not valid on {transport}")
        return problems


@cache
def _load() -> Json:
    spec: Json = json.loads((Path(__file__).parent / "events.json").read_text())
    return spec


def _server_problems(event: Json, spec: Json, known: list[str]) -> list[str]:
    kind, problems = event["type"], []
    for name in spec.get("recommended_required", []):
        if name not in event and f"{kind}.{name}: missing" not in known:
            problems.append(f"{kind}.{name}: missing (stock clients rely on it)")
    if zod := spec.get("agents_js_zod"):
        found: list[str] = []
        _check(event, zod["schema"], zod["schema"], kind, found)
        problems += [f"[agents-js] {problem}" for problem in found if problem not in known]
    for item in _items(event):
        problems += _item_problems(kind, item)
    problems += _status_problems(event)
    if isinstance(event.get("response"), dict):
        problems += _response_problems(kind, event["response"])
    if isinstance(event.get("session"), dict):
        problems += _session_problems(kind, event["session"])
    return problems


def _items(event: Json) -> list[Json]:
    items = [event["item"]] if isinstance(event.get("item"), dict) else []
    return items + list((event.get("response") or {}).get("output") or [])


def _item_problems(kind: str, item: Json) -> list[str]:
    needs = _ITEM_NEEDS.get(item.get("type", ""), ("id",))
    problems = [f"{kind}.item.{name}: missing or null" for name in needs if item.get(name) is None]
    if item.get("type") == "mcp_call" and "output" not in item:
        problems.append(f"{kind}: mcp_call lacks the output key (stock clients rely on it)")
    for tool in item.get("tools") or []:
        if not isinstance(tool.get("description"), str):
            problems.append(f"{kind}: listed tool without a description")
    for part in item.get("content") or []:
        if part.get("type") == "input_audio" and "transcript" not in part:
            problems.append(f"{kind}: input_audio part lacks the transcript key")
        if item.get("role") == "assistant" and part.get("type") not in ("output_text", "output_audio"):
            problems.append(f"{kind}: assistant part type {part.get('type')!r}")
        if part.get("type") == "output_text" and not isinstance(part.get("text"), str):
            problems.append(f"{kind}: output_text part without text")
    return problems


def _status_problems(event: Json) -> list[str]:
    kind, status = event["type"], (event.get("item") or {}).get("status")
    if kind == "response.output_item.added" and status != "in_progress":
        return [f"{kind}: status must be in_progress"]
    if kind == "response.output_item.done" and status not in ("completed", "incomplete"):
        return [f"{kind}: status must be completed or incomplete"]
    return []


def _response_problems(kind: str, response: Json) -> list[str]:
    problems = [f"{kind}.response.{name}: missing" for name in _RESPONSE_NEEDS if name not in response]
    if kind != "response.done":
        return problems
    usage = response.get("usage")
    if not isinstance(usage, dict) or any(name not in usage for name in _USAGE_NEEDS):
        problems.append("response.done: usage must be a full object")
    if response.get("status") == "in_progress":
        problems.append("response.done: status is in_progress")
    error = (response.get("status_details") or {}).get("error") or {}
    if response.get("status") == "failed" and not error.get("message"):
        problems.append("response.done: failed without status_details.error.message")
    return problems


def _session_problems(kind: str, session: Json) -> list[str]:
    """A session is always sent whole."""
    audio = session.get("audio") or {}
    needs = {"session": (session, _SESSION_NEEDS), "session.audio.input": (audio.get("input"), _INPUT_NEEDS)}
    if session.get("type") == "realtime":
        needs["session"] = (session, _SESSION_NEEDS + _REALTIME_NEEDS)
        needs["session.audio.output"] = (audio.get("output"), _OUTPUT_NEEDS)
    return [
        f"{kind}.{path}.{name}: missing"
        for path, (part, names) in needs.items()
        for name in names
        if name not in (part or {})
    ]


def _check(
    value: Any, schema: Any, root: Json, path: str, problems: list[str], *, strict: bool = False
) -> None:
    """The part of JSON Schema that ``events.json`` uses. ``strict``: nothing else may be there."""
    if schema is True or not schema:
        return
    if "$ref" in schema:
        _check(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, path, problems, strict=strict)
        return
    for key in ("anyOf", "oneOf"):
        if key in schema:
            problems += _best_alternative(value, schema[key], root, path, strict)
    if "const" in schema and value != schema["const"]:
        problems.append(f"{path}: expected {schema['const']!r}, got {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        problems.append(f"{path}: {value!r} not one of {schema['enum']}")
    if "type" in schema and not _has_type(value, schema["type"]):
        problems.append(f"{path}: expected {schema['type']}, got {type(value).__name__}")
        return
    if isinstance(value, dict):
        _check_members(value, schema, root, path, problems, strict)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, element in enumerate(value):
            _check(element, schema["items"], root, f"{path}[{index}]", problems, strict=strict)


def _best_alternative(value: Any, alternatives: list[Any], root: Json, path: str, strict: bool) -> list[str]:
    """The complaints of the alternative that complains least."""
    complaints = []
    for alternative in alternatives:
        found: list[str] = []
        _check(value, alternative, root, path, found, strict=strict)
        if not found:
            return found
        complaints.append(found)
    return min(complaints, key=len)


def _has_type(value: Any, wanted: str | list[str]) -> bool:
    names = wanted if isinstance(wanted, list) else [wanted]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names if name != "boolean")


def _check_members(
    value: Json, schema: Json, root: Json, path: str, problems: list[str], strict: bool
) -> None:
    problems += [f"{path}.{name}: missing" for name in schema.get("required", []) if name not in value]
    members = schema.get("properties", {})
    for name, member in value.items():
        if members.get(name) is not None:
            _check(member, members[name], root, f"{path}.{name}", problems, strict=strict)
        elif strict and members and name not in members and not _is_known(value, f"{path}.{name}"):
            problems.append(f"{path}.{name}: unknown")


def _is_known(value: Json, path: str) -> bool:
    kind = value.get("type")
    extra = _MCP_ITEMS.get(kind, ()) if isinstance(kind, str) else ()
    return path in _CAPTURED or path.rpartition(".")[2] in extra
