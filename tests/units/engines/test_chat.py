"""A request as OpenAI chat messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from units.engines.chat import (
    CANCELLED,
    NOTHING,
    UNSEEN,
    chat_messages,
    chat_tool_choice,
    chat_tools,
    talk_only,
    without_images,
)
from units.messages import Generate, Image, Message, Tool, ToolCall, ToolResult

USER = Message("user", "hi")
IMAGE = "data:image/png;base64,AA=="


def chat(*history: Message | ToolCall | ToolResult, instructions: str = "") -> list[dict[str, Any]]:
    return chat_messages(Generate(history=history, instructions=instructions))


def calls(*ids: str, content: str | None = None) -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def call(call_id: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(call_id, "f", arguments)


HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("history", "messages"),
    [
        pytest.param((), [], id="nothing said"),
        pytest.param((USER,), [HI], id="one message"),
        pytest.param(
            (Message("system", "a"), USER),
            [{"role": "system", "content": "a"}, HI],
            id="a system message stays",
        ),
        pytest.param((USER, Message("assistant", " ")), [HI], id="an empty message is left out"),
        pytest.param(
            (USER, Message("user", "there")),
            [{"role": "user", "content": "hi\nthere"}],
            id="two users are one",
        ),
        pytest.param(
            (Message("user", "look", (Image(IMAGE),)),),
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "auto"}},
                    ],
                }
            ],
            id="an image is a part",
        ),
        pytest.param(
            (Message("user", "", (Image(IMAGE, "low"),)),),
            [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}}],
                }
            ],
            id="an image may come without text",
        ),
        pytest.param(
            (USER, call("1"), ToolResult("1", "ok")),
            [HI, calls("1"), result("1", "ok")],
            id="a call and its result",
        ),
        pytest.param(
            (USER, Message("assistant", "wait"), call("1"), ToolResult("1", "ok")),
            [HI, calls("1", content="wait"), result("1", "ok")],
            id="a call belongs to the words before it",
        ),
        pytest.param(
            (USER, call("1"), call("2"), ToolResult("2", "b"), ToolResult("1", "a")),
            [HI, calls("1", "2"), result("1", "a"), result("2", "b")],
            id="calls in a row are one message",
        ),
        pytest.param(
            (USER, call("1"), USER),
            [HI, calls("1"), result("1", CANCELLED), HI],
            id="an orphan call was cancelled",
        ),
        pytest.param(
            (USER, call("1"), USER, ToolResult("1", "late")),
            [HI, calls("1"), result("1", "late"), HI],
            id="a late result moves to its call",
        ),
        pytest.param(
            (USER, call("1"), ToolResult("1", "a"), ToolResult("1", "b")),
            [HI, calls("1"), result("1", "a")],
            id="the first of two results counts",
        ),
        pytest.param((USER, ToolResult("9", "x")), [HI], id="a result without a call is dropped"),
        pytest.param(
            (USER, call("1"), ToolResult("1", "")),
            [HI, calls("1"), result("1", NOTHING)],
            id="an empty result says so",
        ),
        pytest.param(
            (USER, call("1", "not json"), ToolResult("1", "ok")),
            [HI, calls("1"), result("1", "ok")],
            id="arguments that are no object are left out",
        ),
        pytest.param(
            (
                USER,
                call("1"),
                ToolResult("1", "a"),
                Message("assistant", "so"),
                USER,
                call("2"),
                ToolResult("2", "b"),
            ),
            [
                HI,
                calls("1"),
                result("1", "a"),
                {"role": "assistant", "content": "so"},
                HI,
                calls("2"),
                result("2", "b"),
            ],
            id="a second round is apart from the first",
        ),
    ],
)
def test_the_history_becomes_messages(
    history: tuple[Message | ToolCall | ToolResult, ...], messages: list[dict[str, Any]]
) -> None:
    assert chat(*history) == messages


def test_the_instructions_come_first() -> None:
    assert chat(USER, instructions="be kind")[0] == {"role": "system", "content": "be kind"}


def test_the_request_is_not_changed_by_being_converted_twice() -> None:
    request = Generate(history=(USER, USER, call("1")))
    assert chat_messages(request) == chat_messages(request)


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        ('{"type": "object", "properties": {"a": {}}}', {"type": "object", "properties": {"a": {}}}),
        ("{}", {"type": "object", "properties": {}}),
        ("", {"type": "object", "properties": {}}),
    ],
)
def test_a_tool_carries_the_schema_of_its_arguments(parameters: str, schema: dict[str, Any]) -> None:
    [tool] = chat_tools([Tool("f", "does", parameters)])
    assert tool == {
        "type": "function",
        "function": {"name": "f", "description": "does", "parameters": schema},
    }


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("f", {"type": "function", "function": {"name": "f"}}),
        ("unknown", "auto"),
    ],
)
def test_the_tool_choice_has_its_wire_form(choice: str, sent: object) -> None:
    assert chat_tool_choice(Generate(tools=(Tool("f"),), tool_choice=choice)) == sent


WITH_TOOLS = Generate(history=(USER,), tools=(Tool("f"),))


def test_a_request_that_may_call_a_tool_stays_as_it_is() -> None:
    assert talk_only(WITH_TOOLS) is WITH_TOOLS


def test_a_result_at_the_end_is_told_to_a_small_model_in_words_and_without_tools() -> None:
    history = (
        USER,
        call("1"),
        ToolResult("1", "old"),
        Message("assistant", "so"),
        USER,
        call("2"),
        call("3"),
    )
    results = (ToolResult("2", "two"), ToolResult("3", ""), ToolResult("9", "no call"))
    told = talk_only(Generate(history=(*history, *results), tools=(Tool("f"),)))
    assert told.tools == ()
    first, second, third, last = told.history
    assert (first, second, third) == (USER, Message("assistant", "so"), USER)
    assert isinstance(last, Message)
    assert last.text.split("\n") == [
        "",
        "[f({}) returned: two]",
        f"[f({{}}) returned: {NOTHING}]",
        "",
        "Answer me in one short spoken sentence.",
    ]


def test_a_huge_result_is_cut_for_a_small_model() -> None:
    told = talk_only(Generate(history=(USER, call("1"), ToolResult("1", "x" * 1_000_000))))
    assert len(chat_messages(told)[0]["content"]) < 4200


def test_tools_that_may_not_be_called_are_not_shown_to_a_small_model() -> None:
    assert talk_only(replace(WITH_TOOLS, tool_choice="none")).tools == ()


def test_a_model_that_cannot_see_is_told_in_words() -> None:
    request = Generate((Message("user", "look", (Image(IMAGE), Image(IMAGE))), Message("user", "hi")))
    told, kept = without_images(request).history
    assert told == Message("user", f"look\n{UNSEEN}{UNSEEN}")
    assert kept == Message("user", "hi")
