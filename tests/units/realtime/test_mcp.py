"""The MCP side of the pure service: what servers answer goes in, events and effects come out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.units.caller import Json
from tests.units.realtime.test_service import HI, PAUSED, WORDS, Driver
from units.messages import (
    End,
    Finish,
    Generate,
    SpeechEnded,
    SpeechStarted,
    TextDelta,
    TextFinished,
    ToolCall,
    ToolCalled,
    ToolResult,
)
from units.realtime.effects import CallTool, CancelTool, ListTools
from units.realtime.servers import RemoteTool, ToolFault

URL = "https://tools.example.org/mcp"
CITY = '{"type": "object", "properties": {"city": {"type": "string"}}}'
WEATHER = RemoteTool("get_weather", "The weather.", CITY, '{"readOnlyHint": true}', True)
BOOK = RemoteTool("book", "Books a trip.")
ADDED = ["conversation.item.added", "mcp_list_tools.in_progress"]
LISTED = ["mcp_list_tools.completed", "conversation.item.done"]
CALLED = [
    "response.output_item.added",
    "conversation.item.added",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
]
ENDED = ["conversation.item.done", "response.output_item.done"]


def mcp(label: str = "weather", **members: Any) -> Json:
    return {"type": "mcp", "server_label": label, "server_url": URL, "require_approval": "never", **members}


class Session(Driver):
    """A service that may reach one server."""

    def __init__(self, **config: Any) -> None:
        super().__init__(mcp_servers=(URL,), **config)

    def since(self, count: int) -> list[str]:
        return self.types[count:]

    def list(self, *tools: RemoteTool, index: int = -1) -> None:
        """Answer a request for tools."""
        self.perform(self.service.tools_listed(self.of(ListTools)[index].item_id, tools))

    def offers(self) -> list[str]:
        """Names of the tools that the last request to the model has."""
        return [tool.name for tool in self.request.tools]

    @property
    def request(self) -> Generate:
        work = self.submitted[-1].work
        assert isinstance(work, Generate)
        return work

    def ask(self, **response: Any) -> None:
        self.do("conversation.item.create", item=HI)
        self.do("response.create", **({"response": response} if response else {}))

    def call(
        self, name: str = "get_weather", arguments: str = '{"city": "Oslo"}', *, end: bool = True
    ) -> None:
        """Have the model call a tool, and nothing else."""
        self.mouth(ToolCalled(ToolCall("call_1", name, arguments)))
        if end:
            self.mouth(TextFinished(Finish()), End())

    def give(self, outcome: str | ToolFault = "four degrees", index: int = -1) -> None:
        self.perform(self.service.tool_returned(self.of(CallTool)[index].item_id, outcome))

    def last(self, type: str) -> Json:
        return next(event for event in reversed(self.events) if event["type"] == type)

    def codes(self) -> list[str]:
        return [event["error"]["code"] for event in self.events if event["type"] == "error"]


@pytest.fixture
def session() -> Session:
    """A session whose server has listed its tools."""
    session = Session()
    session.configure(tools=[mcp()])
    session.list(WEATHER, BOOK)
    return session


def test_a_server_lists_its_tools() -> None:
    session = Session()
    session.configure(tools=[mcp()])
    session.list(WEATHER)
    assert session.types == ["session.created", "session.updated", *ADDED, *LISTED]
    assert session.of(ListTools)[0].server.url == URL
    item = session.last("conversation.item.done")["item"]
    assert item["tools"] == [
        {
            "name": "get_weather",
            "description": "The weather.",
            "input_schema": json.loads(CITY),
            "annotations": {"readOnlyHint": True},
        }
    ]


def test_settings_from_before_the_client_list_tools_when_it_is_there() -> None:
    session = Session(settings=[{"type": "realtime", "tools": [mcp()]}])
    assert session.types == ["session.created", *ADDED]


def test_a_server_that_is_not_allowed_refuses_the_whole_update() -> None:
    session = Session()
    session.configure(instructions="New.", tools=[mcp(server_url="https://evil.com/mcp")])
    assert session.types[1:] == ["error"]
    assert session.events[-1]["error"]["param"] == "session.tools[0].server_url"
    assert session.service.session.wire()["instructions"] == ""
    session.do("response.create", response={"tools": [mcp(server_url="https://evil.com/mcp")]})
    assert session.events[-1]["error"]["param"] == "response.tools[0].server_url"


def test_a_server_that_lists_nothing_says_why_and_is_asked_again_by_the_next_update() -> None:
    session = Session()
    session.configure(tools=[mcp()])
    fault = ToolFault("http_error", "gone", 502)
    session.perform(session.service.tools_listed(session.of(ListTools)[0].item_id, fault))
    assert session.types[-2:] == ["mcp_list_tools.failed", "conversation.item.done"]
    item = session.events[-1]["item"]
    assert (item["tools"], item["error"]) == ([], {"type": "http_error", "code": 502, "message": "gone"})
    session.ask()
    assert session.offers() == []
    session.configure(tools=[mcp()])
    assert len(session.of(ListTools)) == 2


def test_the_same_server_is_asked_once(session: Session) -> None:
    session.configure(tools=[mcp(require_approval="always")])
    session.configure(tools=[])
    session.configure(tools=[mcp()])
    assert len(session.of(ListTools)) == 1
    session.configure(tools=[mcp(authorization="token")])
    assert len(session.of(ListTools)) == 2


def test_tools_are_offered_beside_functions_until_they_are_removed(session: Session) -> None:
    session.configure(tools=[{"type": "function", "name": "f"}, mcp()])
    session.ask()
    assert session.offers() == ["f", "get_weather", "book"]
    session.mouth(End())
    session.configure(tools=[])
    session.ask()
    assert session.offers() == []


def test_only_allowed_tools_are_listed_and_offered() -> None:
    session = Session()
    session.configure(tools=[mcp(allowed_tools={"read_only": True})])
    session.list(WEATHER, BOOK)
    assert [tool["name"] for tool in session.events[-1]["item"]["tools"]] == ["get_weather"]
    session.ask()
    assert session.offers() == ["get_weather"]


def test_names_that_clash_get_the_label_and_then_a_number() -> None:
    session = Session()
    tools = [{"type": "function", "name": "book"}, {"type": "function", "name": "a_book"}]
    session.configure(tools=[*tools, mcp("a"), mcp("b"), mcp("c", server_description="Third")])
    for index in range(3):
        session.list(BOOK, RemoteTool("x.y/z"), index=index)
    session.ask()
    offered = ["a_book_2", "x_y_z", "b_book", "b_x_y_z", "c_book", "c_x_y_z"]
    assert session.offers() == ["book", "a_book", *offered]
    assert session.request.tools[-2].description == "Third: Books a trip."
    session.call("c_x_y_z")
    effect = session.of(CallTool)[0]
    assert (effect.server.label, effect.name) == ("c", "x.y/z")


def test_thousands_of_tools_are_cut_down() -> None:
    session = Session()
    session.configure(tools=[mcp("a"), mcp("b")])
    for index in range(2):
        session.list(*(RemoteTool(f"tool_{n}") for n in range(10_000)), index=index)
        assert len(session.events[-1]["item"]["tools"]) == 128
    session.ask()
    assert len(session.offers()) == 128


@pytest.mark.parametrize(
    ("choice", "expected", "offered"),
    [
        (
            {"type": "mcp", "server_label": "weather", "name": "book"},
            "book",
            ["get_weather", "book", "b_book"],
        ),
        ({"type": "mcp", "server_label": "b", "name": "book"}, "b_book", ["get_weather", "book", "b_book"]),
        ({"type": "mcp", "server_label": "b"}, "required", ["b_book"]),
        ({"type": "mcp", "server_label": "nobody"}, "auto", ["get_weather", "book", "b_book"]),
    ],
)
def test_a_tool_of_a_server_can_be_chosen(
    session: Session, choice: Json, expected: str, offered: list[str]
) -> None:
    session.configure(tools=[mcp(), mcp("b")])
    session.list(BOOK)
    session.ask(tool_choice=choice)
    assert (session.request.tool_choice, session.offers()) == (expected, offered)


def test_a_tool_is_called_and_the_client_told_once_the_response_is_done(session: Session) -> None:
    session.ask()
    before = len(session.types)
    session.call(end=False)
    session.give()
    session.mouth(TextFinished(Finish()), End())
    assert session.since(before) == [
        *CALLED,
        "response.mcp_call.in_progress",
        "response.done",
        "rate_limits.updated",
        "response.mcp_call.completed",
        *ENDED,
    ]
    item = session.events[-1]["item"]
    assert (item["name"], item["arguments"]) == ("get_weather", '{"city": "Oslo"}')
    assert (item["output"], item["status"]) == ("four degrees", "completed")
    assert "error" not in item


def test_a_tool_may_outlive_its_response(session: Session) -> None:
    session.ask()
    session.call()
    assert "response.mcp_call.completed" not in session.types
    session.give()
    assert session.types[-3:] == ["response.mcp_call.completed", *ENDED]


def test_the_model_is_told_what_the_tool_gave(session: Session) -> None:
    session.ask()
    session.call()
    session.ask()
    assert "no result" in session.request.history[2].output  # type: ignore[union-attr]
    session.mouth(End())
    session.give()
    session.do("response.create")
    call_id = session.of(CallTool)[0].item_id
    assert session.request.history[1:3] == (
        ToolCall(call_id, "get_weather", '{"city": "Oslo"}'),
        ToolResult(call_id, "four degrees"),
    )


def test_a_tool_that_fails_is_an_error_for_client_and_model(session: Session) -> None:
    session.ask()
    session.call()
    session.give(ToolFault("tool_execution_error", "No such city."))
    assert session.types[-3:] == ["response.mcp_call.failed", *ENDED]
    item = session.events[-1]["item"]
    assert item["error"] == {"type": "tool_execution_error", "message": "No such city."}
    assert (item["output"], item["status"]) == (None, "incomplete")
    session.do("response.create")
    assert session.request.history[-1].output == "Error: No such city."  # type: ignore[union-attr]


def test_a_result_comes_once(session: Session) -> None:
    session.ask()
    session.call()
    session.give()
    count = len(session.types)
    session.give("again")
    assert len(session.types) == count


def test_speculation_calls_nothing() -> None:
    session = Session()
    session.configure(tools=[mcp()])
    session.list(WEATHER)
    session.ears(*PAUSED, WORDS)
    session.call()
    assert session.of(CallTool) == []
    session.ears(SpeechEnded(1, 1000))
    assert len(session.of(CallTool)) == 1


# --- approval ------------------------------------------------------------------------------------


def asked() -> Session:
    """A session in which a call waits for approval."""
    session = Session()
    session.configure(tools=[mcp(require_approval="always")])
    session.list(WEATHER)
    session.ask()
    session.call()
    return session


def answer(session: Session, approve: bool, **members: Any) -> None:
    request_id = session.last("response.done")["response"]["output"][-1]["id"]
    item = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": approve, **members}
    session.do("conversation.item.create", item=item)


def test_a_call_waits_for_approval() -> None:
    session = asked()
    request = ["response.output_item.added", "conversation.item.added", *ENDED]
    assert session.types[-10:] == [*CALLED, *request, "response.done", "rate_limits.updated"]
    call, approval = session.done["output"]
    assert (approval["type"], approval["arguments"]) == ("mcp_approval_request", '{"city": "Oslo"}')
    assert call["approval_request_id"] == approval["id"]
    assert session.of(CallTool) == []


def test_an_approved_call_is_made() -> None:
    session = asked()
    answer(session, True)
    assert session.types[-3:] == [
        "conversation.item.added",
        "conversation.item.done",
        "response.mcp_call.in_progress",
    ]
    session.give()
    assert session.types[-3:] == ["response.mcp_call.completed", *ENDED]


def test_a_refused_call_fails_and_the_model_is_told() -> None:
    session = asked()
    answer(session, False, reason="Too far.")
    assert session.types[-3:] == ["response.mcp_call.failed", *ENDED]
    session.do("response.create")
    told = session.request.history[-1]
    assert isinstance(told, ToolResult)
    assert told.output == "Error: The user did not approve this call. Too far."
    assert session.of(CallTool) == []


def test_an_answer_to_no_request_is_an_error() -> None:
    session = asked()
    answer(session, True)
    answer(session, True)
    assert session.codes() == ["invalid_value"]
    assert session.events[-1]["error"]["param"] == "item.approval_request_id"
    item = {"type": "mcp_approval_response", "approval_request_id": "mcpr_no", "approve": True}
    session.do("conversation.item.create", item=item)
    assert session.codes() == ["invalid_value"] * 2


# --- what comes in between -----------------------------------------------------------------------


def test_a_cancelled_response_takes_its_tools_with_it(session: Session) -> None:
    session.ask()
    session.mouth(TextDelta("Let me see."))
    session.call(end=False)
    session.do("response.cancel")
    item_id = session.of(CallTool)[0].item_id
    assert [effect.item_id for effect in session.of(CancelTool)] == [item_id]
    assert session.types[-5:] == ["response.done", "rate_limits.updated", "response.mcp_call.failed", *ENDED]
    count = len(session.types)
    session.give()
    assert len(session.types) == count


def test_running_tools_can_be_cancelled_after_their_response(session: Session) -> None:
    session.ask()
    session.call()
    response_id = session.last("response.done")["response"]["id"]
    session.do("response.cancel", response_id=response_id)
    assert session.types[-3:] == ["response.mcp_call.failed", *ENDED]
    session.do("response.cancel", response_id=response_id)
    session.do("response.cancel")
    assert session.codes() == ["response_cancel_not_active"] * 2


def test_a_call_that_waits_for_approval_survives_a_cancel_of_nothing() -> None:
    session = asked()
    session.do("response.cancel")
    assert session.codes() == ["response_cancel_not_active"]
    answer(session, True)
    assert len(session.of(CallTool)) == 1


def test_a_tool_goes_on_while_the_caller_speaks(session: Session) -> None:
    session.ask()
    session.mouth(TextDelta("Let me see."))
    session.call(end=False)
    session.ears(SpeechStarted(1, 0))
    assert session.last("response.done")["response"]["status"] == "cancelled"
    assert session.of(CancelTool) == []
    session.give()
    assert session.types[-3:] == ["response.mcp_call.completed", *ENDED]


def test_a_deleted_call_is_not_spoken_of_in_the_conversation(session: Session) -> None:
    session.ask()
    session.call()
    session.do("conversation.item.delete", item_id=session.of(CallTool)[0].item_id)
    session.give()
    assert session.types[-2:] == ["response.mcp_call.completed", "response.output_item.done"]


def test_a_deleted_list_still_counts() -> None:
    session = Session()
    session.configure(tools=[mcp()])
    session.do("conversation.item.delete", item_id=session.of(ListTools)[0].item_id)
    session.list(WEATHER)
    assert session.types[-1] == "mcp_list_tools.completed"
    session.ask()
    assert session.offers() == ["get_weather"]


def test_an_out_of_band_response_may_call(session: Session) -> None:
    session.do("response.create", response={"conversation": "none", "input": [HI]})
    session.call()
    session.give()
    assert session.types[-2:] == ["response.mcp_call.completed", "response.output_item.done"]
    assert session.events[-1]["item"]["output"] == "four degrees"


def test_a_response_waits_for_servers_of_its_own() -> None:
    session = Session()
    session.ask(tools=[mcp()])
    assert session.submitted == []
    session.list(WEATHER)
    assert session.offers() == ["get_weather"]
    session.mouth(End())
    session.ask()
    assert session.offers() == []
    session.mouth(End())
    session.ask(tools=[mcp()])
    assert len(session.of(ListTools)) == 1


def test_a_response_does_not_wait_for_ever_for_a_server_that_fails() -> None:
    session = Session()
    session.ask(tools=[mcp()])
    fault = ToolFault("http_error", "gone", 502)
    session.perform(session.service.tools_listed(session.of(ListTools)[0].item_id, fault))
    assert session.offers() == []
    assert len(session.of(ListTools)) == 1


def test_a_response_does_not_wait_for_ever_for_two_servers_that_fail() -> None:
    session = Session()
    session.ask(tools=[mcp("a"), mcp("b")])
    fault = ToolFault("http_error", "gone", 502)
    for effect in session.of(ListTools):
        session.perform(session.service.tools_listed(effect.item_id, fault))
    assert session.offers() == []
    assert len(session.of(ListTools)) == 2


def test_open_calls_are_limited() -> None:
    session = Session()
    session.configure(tools=[mcp(require_approval="always")])
    session.list(WEATHER)
    session.ask()
    for _ in range(65):
        session.call(end=False)
    session.mouth(End())
    assert session.types[-3:] == ["response.mcp_call.failed", *ENDED]
    assert session.types.count("response.mcp_call.failed") == 1


def test_many_configurations_are_forgotten_in_turn() -> None:
    session = Session()
    for number in range(70):
        session.configure(tools=[mcp(authorization=str(number))])
        session.list(WEATHER)
    session.configure(tools=[mcp(authorization="69")])
    assert len(session.of(ListTools)) == 70
    session.configure(tools=[mcp(authorization="0")])
    assert len(session.of(ListTools)) == 71
