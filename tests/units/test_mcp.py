"""Whole conversations with a real MCP server, from the session to the spoken answer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mcp_server import Tools, mcp_server
from tests.units.caller import Caller, Json, loud, quiet, said, scripted
from tests.units.conftest import UnitFactory
from tests.units.odd_engines import RememberingLLM
from tests.units.test_order import complaints
from units import PipelineConfig
from units.engines.scripted import ANSWER

OUTPUT = "four degrees in Oslo"


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    with mcp_server() as tools:
        yield tools


@pytest.fixture(autouse=True)
def nothing_hangs(tools: Tools) -> None:
    tools.hanging.clear()
    tools.let_go.clear()
    tools.asked.clear()


def mcp(tools: Tools, **members: Any) -> Json:
    return {
        "type": "mcp",
        "server_label": "weather",
        "server_url": tools.url,
        "require_approval": "never",
        **members,
    }


async def called(new_unit: UnitFactory, tools: Tools, **members: Any) -> Caller:
    """A caller whose session has its tools."""
    caller = Caller(new_unit(config=PipelineConfig(apology="", mcp_servers=(tools.url,))))
    caller.configure(tools=[mcp(tools, **members)])
    await caller.got("mcp_list_tools.completed")
    return caller


def ending(caller: Caller) -> Json:
    """The call, as it ended."""
    items = [event["item"] for event in caller.of("response.output_item.done")]
    return next(item for item in reversed(items) if item["type"] == "mcp_call")


async def test_a_tool_is_listed_called_and_its_result_spoken(new_unit: UnitFactory, tools: Tools) -> None:
    caller = await called(new_unit, tools)
    listed = caller.events[-1]["item"] if caller.types[-1] == "conversation.item.done" else None
    assert listed is not None
    assert [tool["name"] for tool in listed["tools"]] == ["get_weather", "fail", "hang", "talk"]
    caller.write("What is the weather like?")
    await caller.got("response.mcp_call.completed")
    assert ending(caller)["output"] == OUTPUT
    assert tools.asked == [("get_weather", "Oslo")]
    caller.do("response.create")
    await caller.got("response.done", 2)
    assert said(caller.responses[1]) == f"The tool said: {OUTPUT}."
    await caller.unit.eventually(lambda: not caller.unit.outstanding - {caller.session.scope})
    assert len(caller.listen(20_000)) > 0
    await caller.hang_up()


async def test_an_approved_call_is_made(new_unit: UnitFactory, tools: Tools) -> None:
    caller = await called(new_unit, tools, require_approval="always")
    caller.write("What is the weather like?")
    await caller.got("response.done")
    request = caller.responses[0]["output"][-1]
    assert request["type"] == "mcp_approval_request"
    assert tools.asked == []
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    caller.do("conversation.item.create", item=answer)
    await caller.got("response.mcp_call.completed")
    assert ending(caller)["approval_request_id"] == request["id"]
    assert ending(caller)["output"] == OUTPUT
    await caller.hang_up()


async def test_a_refused_call_is_not_made_and_the_model_is_told(new_unit: UnitFactory, tools: Tools) -> None:
    caller = await called(new_unit, tools, require_approval="always")
    caller.write("What is the weather like?")
    await caller.got("response.done")
    request = caller.responses[0]["output"][-1]
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False}
    caller.do("conversation.item.create", item=answer)
    caller.do("response.create")
    await caller.got("response.done", 2)
    assert said(caller.responses[1]) == "The tool said: Error: The user did not approve this call.."
    assert tools.asked == []
    await caller.hang_up()


async def test_a_tool_that_fails_is_spoken_of(new_unit: UnitFactory, tools: Tools) -> None:
    caller = await called(new_unit, tools, allowed_tools=["fail"])
    caller.write("What is the weather like?")
    await caller.got("response.mcp_call.failed")
    assert ending(caller)["error"] == {"type": "tool_execution_error", "message": "Error executing tool fail"}
    caller.do("response.create")
    await caller.got("response.done", 2)
    assert said(caller.responses[1]) == "The tool said: Error: Error executing tool fail."
    await caller.hang_up()


async def hung(new_unit: UnitFactory, tools: Tools) -> Caller:
    """A caller whose tool hangs."""
    caller = await called(new_unit, tools, allowed_tools=["hang"])
    caller.write("What is the weather like?")
    await caller.got("response.done")
    assert await asyncio.to_thread(tools.hanging.wait, 10)
    return caller


async def test_a_tool_that_hangs_is_cancelled_and_nothing_of_it_comes_later(
    new_unit: UnitFactory, tools: Tools
) -> None:
    caller = await hung(new_unit, tools)
    caller.do("response.cancel")
    assert caller.types[-3:] == [
        "response.mcp_call.failed",
        "conversation.item.done",
        "response.output_item.done",
    ]
    assert await asyncio.to_thread(tools.let_go.wait, 10)
    caller.write("hi")
    await caller.got("response.done", 2)
    assert said(caller.responses[1]) == ANSWER
    assert caller.types.count("response.mcp_call.completed") == 0
    await caller.hang_up()


async def test_a_tool_that_hangs_keeps_nobody_from_talking(new_unit: UnitFactory, tools: Tools) -> None:
    caller = await hung(new_unit, tools)
    caller.say(loud(1000), quiet(800))
    await caller.got("response.done", 2)
    assert said(caller.responses[1]) == ANSWER
    assert not tools.let_go.is_set()
    await caller.hang_up()
    assert await asyncio.to_thread(tools.let_go.wait, 10)


async def test_hanging_up_ends_the_tool(new_unit: UnitFactory, tools: Tools) -> None:
    caller = await hung(new_unit, tools)
    await caller.hang_up()
    assert await asyncio.to_thread(tools.let_go.wait, 10)
    count = len(caller.events)
    again = Caller(caller.unit)
    again.write("hi")
    await again.got("response.done")
    assert "mcp_call" not in str(again.events)
    assert len(caller.events) == count
    await again.hang_up()


async def test_the_model_sees_the_call_and_its_result(new_unit: UnitFactory, tools: Tools) -> None:
    llm = RememberingLLM()
    config = PipelineConfig(apology="", mcp_servers=(tools.url,))
    caller = Caller(new_unit(scripted(llm=llm), config))
    caller.configure(tools=[mcp(tools, allowed_tools={"read_only": True})])
    await caller.got("mcp_list_tools.completed")
    caller.write("hi")
    await caller.got("response.done")
    (tool,) = llm.requests[-1].tools
    assert tool.name == "get_weather"
    assert json.loads(tool.parameters)["required"] == ["city"]
    await caller.hang_up()


async def test_secrets_are_in_no_event_and_no_log(
    new_unit: UnitFactory, tools: Tools, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "units")
    caller = await called(new_unit, tools, authorization="s3cret", headers={"X-Key": "s3cret"})
    caller.write("What is the weather like?")
    await caller.got("response.mcp_call.completed")
    assert "Bearer s3cret" in tools.authorizations
    assert "s3cret" not in json.dumps(caller.events)
    assert "s3cret" not in caplog.text
    await caller.hang_up()


async def conversation(new_unit: UnitFactory, tools: Tools) -> list[Json]:
    caller = await called(new_unit, tools, require_approval={"never": {"read_only": True}})
    caller.write("What is the weather like?")
    await caller.got("response.output_item.done")
    choice = {"type": "mcp", "server_label": "weather", "name": "talk"}
    caller.write("Talk.", tool_choice=choice)
    await caller.got("response.done", 2)
    request_id = caller.responses[1]["output"][-1]["id"]
    answer = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": True}
    caller.do("conversation.item.create", item=answer)
    await caller.got("response.mcp_call.completed", 2)
    await caller.hang_up()
    return caller.events


async def test_the_checker_notices_every_event_of_a_tool_that_is_missing_or_doubled(
    new_unit: UnitFactory, tools: Tools
) -> None:
    events = await conversation(new_unit, tools)
    assert not complaints(events)
    for index, event in enumerate(events):
        if event["type"] not in ("session.updated", "session.created", "rate_limits.updated"):
            again = event | {"event_id": "event_again"}
            assert complaints([*events[: index + 1], again, *events[index + 1 :]]), event["type"]
            assert complaints([*events[:index], *events[index + 1 :]]), event["type"]


@pytest.mark.e2e
def test_without_servers_the_sdk_is_not_loaded() -> None:
    code = (
        "import sys; from units import *; s = EngineSettings('scripted');"
        "build_pipeline(PipelineConfig(vad=s, stt=s, llm=s, tts=s));"
        "assert 'mcp' not in sys.modules;"
        "build_pipeline(PipelineConfig(vad=s, stt=s, llm=s, tts=s, mcp_servers=('http://localhost/',)));"
        "assert 'mcp' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
