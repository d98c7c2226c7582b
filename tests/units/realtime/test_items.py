"""Items that clients create, their place in the conversation, and what the model is shown of them."""

from __future__ import annotations

from typing import Any

import pytest

from units.messages import Image, Message, ToolCall, ToolResult
from units.realtime.conversation import Conversation, Item
from units.realtime.errors import ProtocolError
from units.realtime.items import read_item


def message(role: str, *content: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [*content], **members}


HELLO = {"type": "input_text", "text": "hi"}
PNG = "data:image/png;base64,AAAA"

READ: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (message("user", HELLO), {"id": "new", "role": "user", "content": [HELLO], "status": "completed"}),
    (message("user", HELLO, id="mine"), {"id": "mine"}),
    (message("user", HELLO, id=None, status=None), {"id": "new", "status": "completed"}),
    (message("user", HELLO, status="in_progress"), {"status": "completed"}),
    (message("system"), {"content": []}),
    (
        message("assistant", {"type": "output_text", "text": "a"}),
        {"content": [{"type": "output_text", "text": "a"}]},
    ),
    (
        message("assistant", {"type": "text", "text": "a"}),
        {"content": [{"type": "output_text", "text": "a"}]},
    ),
    (
        message("user", {"type": "input_audio", "transcript": "a", "audio": "AAAA"}),
        {"content": [{"type": "input_audio", "transcript": "a"}]},
    ),
    (
        message("user", {"type": "input_audio", "audio": "AAAA"}),
        {"content": [{"type": "input_audio", "transcript": None}]},
    ),
    (
        message("user", {"type": "input_image", "image_url": PNG}),
        {"content": [{"type": "input_image", "image_url": PNG, "detail": "auto"}]},
    ),
    ({"type": "function_call", "name": "f", "arguments": "{}"}, {"call_id": "new", "arguments": "{}"}),
    ({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}, {"call_id": "c"}),
    ({"type": "function_call_output", "call_id": "c", "output": "o"}, {"call_id": "c", "output": "o"}),
]


@pytest.mark.parametrize(("given", "members"), READ)
def test_an_item_is_kept_as_it_stands_on_the_wire(given: dict[str, Any], members: dict[str, Any]) -> None:
    item = read_item(given, "new")
    assert {name: item[name] for name in members} == members
    assert item["object"] == "realtime.item"


REFUSED: list[tuple[Any, str, str]] = [
    (None, "invalid_type", "item"),
    ({}, "missing_required_parameter", "item.type"),
    ({"type": "item_reference"}, "invalid_value", "item.type"),
    ({"type": "message"}, "missing_required_parameter", "item.role"),
    ({"type": "message", "role": "judge"}, "invalid_value", "item.role"),
    ({"type": "message", "role": "user"}, "missing_required_parameter", "item.content"),
    (message("user") | {"content": "hi"}, "invalid_type", "item.content"),
    (message("user", {}), "missing_required_parameter", "item.content[0].type"),
    (message("user", HELLO, {"type": "input_text"}), "missing_required_parameter", "item.content[1].text"),
    (message("user", {"type": "output_text", "text": ""}), "invalid_value", "item.content[0].type"),
    (message("assistant", {"type": "output_audio"}), "missing_required_parameter", "item.content[0].text"),
    (message("user", {"type": "input_audio"}), "missing_required_parameter", "item.content[0].audio"),
    (
        message("user", {"type": "input_image", "image_url": "https://x.y/z.png"}),
        "invalid_value",
        "item.content[0].image_url",
    ),
    (message("user", HELLO, id="not an id"), "invalid_value", "item.id"),
    (message("user", HELLO, id="x" * 65), "string_above_max_length", "item.id"),
    (message("user", HELLO, x=1), "unknown_parameter", "item.x"),
    ({"type": "function_call", "arguments": "{}"}, "missing_required_parameter", "item.name"),
    ({"type": "function_call_output", "output": ""}, "missing_required_parameter", "item.call_id"),
    ({"type": "function_call_output", "call_id": "c", "output": {}}, "invalid_type", "item.output"),
]


@pytest.mark.parametrize(("given", "code", "param"), REFUSED)
def test_a_wrong_item_is_refused_and_named(given: Any, code: str, param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_item(given, "new")
    assert (caught.value.code, caught.value.param) == (code, param)


def item(id: str) -> Item:
    return read_item(message("user", {"type": "input_text", "text": id}), id)


def conversation(*ids: str) -> Conversation:
    made = Conversation("conv")
    for id in ids:
        made.insert(item(id))
    return made


def order(made: Conversation) -> list[str]:
    return [entry.text for entry in made.history() if isinstance(entry, Message)]


@pytest.mark.parametrize(
    ("previous", "expected", "front"),
    [
        (None, ["a", "b", "x"], "b"),
        ("", ["a", "b", "x"], "b"),
        ("root", ["x", "a", "b"], None),
        ("a", ["a", "x", "b"], "a"),
        ("b", ["a", "b", "x"], "b"),
    ],
)
def test_an_item_goes_where_the_client_wants_it(
    previous: str | None, expected: list[str], front: str | None
) -> None:
    made = conversation("a", "b")
    made.insert(item("x"), previous)
    assert order(made) == expected
    assert made.previous_id("x") == front


@pytest.mark.parametrize(
    ("id", "previous", "code", "param"),
    [
        ("x", "nope", "item_create_invalid_previous_item_id", "previous_item_id"),
        ("a", None, "item_create_duplicate_item_id", "item.id"),
    ],
)
def test_a_wrong_place_or_id_changes_nothing(id: str, previous: str | None, code: str, param: str) -> None:
    made = conversation("a", "b")
    with pytest.raises(ProtocolError) as caught:
        made.insert(item(id), previous)
    assert (caught.value.code, caught.value.param) == (code, param)
    assert order(made) == ["a", "b"]


def test_deleting_closes_the_gap() -> None:
    made = conversation("a", "b", "c")
    made.delete("b")
    assert made.previous_id("c") == "a"
    assert "b" not in made
    assert made.last_id == "c"


def test_the_history_is_what_was_said_called_and_returned() -> None:
    made = Conversation("conv")
    for given in (
        message("system", {"type": "input_text", "text": "Be kind."}),
        message("user", HELLO, {"type": "input_image", "image_url": PNG}),
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        message("assistant", {"type": "output_text", "text": " It is sunny. "}),
        message("user"),
    ):
        made.insert(read_item(given, f"item{made.last_id}"))
    made.insert(
        {
            "id": "v",
            "type": "message",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        }
    )
    assert made.history() == (
        Message("system", "Be kind."),
        Message("user", "hi", (Image(PNG),)),
        ToolCall("c", "f", "{}"),
        ToolResult("c", "sunny"),
        Message("assistant", "It is sunny."),
    )


def test_the_history_is_a_snapshot() -> None:
    made = conversation("a")
    before = made.history()
    made.insert(item("b"))
    found = made.find("a")
    assert found is not None
    found["content"][0]["text"] = "changed"
    assert before == (Message("user", "a"),)
    hash(before)


def test_calls_are_known_by_their_id() -> None:
    made = conversation("a")
    assert not made.calls("c")
    made.insert(read_item({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}, "new"))
    assert made.calls("c")
