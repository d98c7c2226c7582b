"""Items that clients put into the conversation: what is accepted, and in which form it is kept."""

from __future__ import annotations

import re
from typing import Any

from units.messages import Int16
from units.realtime.conversation import Item
from units.realtime.errors import missing, wrong_value
from units.realtime.schema import Check, anything, array, boolean, by_type, fields, nullable, one_of, string
from units.realtime.sound import decoded

_ID = re.compile(r"[a-zA-Z0-9_-]+")


def _id(value: Any, path: str) -> Any:
    if not _ID.fullmatch(string(64)(value, path)):
        raise wrong_value(path, value, "letters, digits, '_' and '-'")
    return value


def _image_url(value: Any, path: str) -> Any:
    if not string(20_000_000)(value, path).startswith(("data:image/png;", "data:image/jpeg;")):
        raise wrong_value(path, value, "a data URI of a PNG or JPEG image")
    return value


_STATUS = one_of("completed", "incomplete", "in_progress")
_COMMON: dict[str, Check] = {
    "id": nullable(_id),
    "object": anything,
    "type": anything,
    "status": nullable(_STATUS),
}

_text = fields({"type": anything, "text": string()}, required=("text",))

_PARTS: dict[str, Check] = {
    "system": by_type({"input_text": _text}),
    "user": by_type(
        {
            "input_text": _text,
            "input_audio": fields(
                {"type": anything, "audio": nullable(string(20_000_000)), "transcript": nullable(string())}
            ),
            "input_image": fields(
                {
                    "type": anything,
                    "image_url": _image_url,
                    "detail": nullable(one_of("auto", "low", "high")),
                },
                required=("image_url",),
            ),
        }
    ),
    "assistant": by_type({"output_text": _text, "text": _text, "output_audio": _text}),
}


def _message(value: Any, path: str) -> Any:
    if "role" not in value:
        raise missing(f"{path}.role")
    role = one_of(*_PARTS)(value["role"], f"{path}.role")
    members = {**_COMMON, "role": anything, "content": array(_PARTS[role])}
    return fields(members, required=("content",))(value, path)


_item = by_type(
    {
        "message": _message,
        "function_call": fields(
            {**_COMMON, "call_id": nullable(string(256)), "name": string(64), "arguments": string()},
            required=("name", "arguments"),
        ),
        "function_call_output": fields(
            {**_COMMON, "call_id": string(256), "output": string()}, required=("call_id", "output")
        ),
        "mcp_approval_response": fields(
            {
                **_COMMON,
                "approval_request_id": string(64),
                "approve": boolean,
                "reason": nullable(string(4_096)),
            },
            required=("approval_request_id", "approve"),
        ),
    }
)


def read_item(value: Any, new_id: str, path: str = "item") -> Item:
    """The item to keep for what a client sent; ``new_id`` is for one without an id. Raises ProtocolError."""
    checked = _item(value, path)
    item: Item = {
        "id": checked.get("id") or new_id,
        "object": "realtime.item",
        "type": checked["type"],
        "status": "completed",
    }
    match item["type"]:
        case "message":
            content = [_part(part, f"{path}.content[{n}]") for n, part in enumerate(checked["content"])]
            item |= {"role": checked["role"], "content": content}
        case "function_call":
            call_id = checked.get("call_id") or item["id"]
            item |= {"call_id": call_id, "name": checked["name"], "arguments": checked["arguments"]}
        case "function_call_output":
            item |= {"call_id": checked["call_id"], "output": checked["output"]}
        case "mcp_approval_response":
            item |= {name: checked[name] for name in ("approval_request_id", "approve")}
            item |= {"reason": checked["reason"]} if checked.get("reason") else {}
    return item


def recordings(value: Any, kind: str, path: str = "item") -> list[tuple[int, Int16]]:
    """The sound of those parts of an item, as a client sent it, whose words are not known, with their index.

    ``kind`` is the format of sound from the client. Raises ProtocolError.
    """
    parts = enumerate(value["content"] if value["type"] == "message" else ())
    return [
        (n, decoded(part["audio"], kind, f"{path}.content[{n}].audio"))
        for n, part in parts
        if part["type"] == "input_audio" and not part.get("transcript")
    ]


def _part(part: dict[str, Any], path: str) -> dict[str, Any]:
    match part["type"]:
        case "input_audio":
            if not part.get("transcript") and not part.get("audio"):
                raise missing(f"{path}.audio")
            return {"type": "input_audio", "transcript": part.get("transcript") or None}
        case "text" | "output_text":
            return {"type": "output_text", "text": part["text"]}
        case "input_image":
            return {
                "type": "input_image",
                "image_url": part["image_url"],
                "detail": part.get("detail") or "auto",
            }
    return {"type": part["type"], "text": part["text"]}
