"""docs/protocol.md: what its tables say is what the server does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from server.app import build_app
from server.settings import Settings
from tests.mcp_server import Tools, mcp_server
from tests.units.caller import Caller, WatchedUnit, loud, quiet, scripted
from units import PipelineConfig
from units.engines.base import EngineError, EngineSettings
from units.engines.scripted import ScriptedSTT
from units.realtime.service import RealtimeService
from units.scope import CancelScope

ROOT = Path(__file__).parents[2]
EVENTS = json.loads((ROOT / "tests/protocol/events.json").read_text(encoding="utf-8"))
TRANSCRIBED = {"input": {"transcription": {"model": "whisper-1"}}}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


def table(heading: str) -> list[tuple[str, ...]]:
    """The rows of the table under ``heading``: their first two cells."""
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip(" `") for cell in row[:2]) for row in rows[2:]]


def test_the_endpoints_are_those_of_the_server() -> None:
    routes = build_app(Settings(), lambda _: pytest.fail("nothing is loaded here")).router.routes()
    there = {(route.method, route.resource.canonical) for route in routes if route.resource}
    api = {(method, path) for method, path in there if path.startswith("/v1/")}
    assert {row for row in api if row[0] not in ("HEAD", "OPTIONS")} == set(table("Endpoints"))


def test_the_client_events_are_those_that_are_handled() -> None:
    rows = dict(table("Client events"))
    assert rows.keys() == EVENTS["client_events"].keys()
    handled = set(RealtimeService(CancelScope("session"))._handlers)
    assert {kind for kind, support in rows.items() if support == "yes"} == handled


class Unsteady(ScriptedSTT):
    """Fails when it is told to."""

    failing = False

    def transcribe(self, *arguments: Any, **options: Any) -> Any:
        if self.failing:
            raise EngineError("no ears")
        return super().transcribe(*arguments, **options)


class Listener(Caller):
    """A client that plays the sound itself."""

    plays_audio = False


async def test_the_server_events_are_those_that_are_sent() -> None:
    rows = dict(table("Server events"))
    assert rows.keys() == EVENTS["server_events"].keys()
    sent = {kind for kind, support in rows.items() if support == "yes"}
    assert await tour() == sent


async def tour() -> set[str]:
    """Have conversations in which everything happens that can; the types of all events."""
    stt = Unsteady(EngineSettings("scripted"))
    with mcp_server() as tools:
        unit = WatchedUnit(scripted(stt=stt), PipelineConfig(apology="", mcp_servers=(tools.origin,)))
        unit.start()
        seen: set[str] = set()
        for conversation in (_on_a_call, _over_websocket):
            seen |= await conversation(unit, stt)
        seen |= await _with_tools(unit, tools)
        assert await unit.finished() == []
    return seen


async def _on_a_call(unit: WatchedUnit, stt: Unsteady) -> set[str]:
    caller = Caller(unit)
    idle = {"type": "server_vad", "idle_timeout_ms": 5000}
    caller.configure(audio={"input": {**TRANSCRIBED["input"], "turn_detection": idle}})
    caller.do("nope")
    caller.say(loud(3500))
    await caller.got("conversation.item.input_audio_transcription.delta")
    caller.say(quiet(800))
    await caller.got("response.done")
    await _heard(caller)
    caller.say(quiet(5500))  # timeout_triggered
    await caller.got("response.done", 2)
    caller.listen(40)
    caller.say(loud(500))  # cleared, truncated
    await caller.got("conversation.item.truncated")
    stt.failing = True
    caller.say(quiet(800))
    await caller.got("conversation.item.input_audio_transcription.failed")
    await caller.got("response.done", 3)
    stt.failing = False
    await _heard(caller)
    caller.write("What is the weather?", tools=[WEATHER], output_modalities=["text"])
    await caller.got("response.function_call_arguments.done")
    await caller.got("response.done", 4)
    caller.write("hi", output_modalities=["text"])
    await caller.got("response.output_text.done")
    item_id = caller.of("conversation.item.done")[-1]["item"]["id"]
    caller.do("conversation.item.retrieve", item_id=item_id)
    caller.do("conversation.item.delete", item_id=item_id)
    caller.do("input_audio_buffer.clear")
    await caller.hang_up()
    return set(caller.types)


async def _over_websocket(unit: WatchedUnit, _: Unsteady) -> set[str]:
    caller = Listener(unit)
    caller.write("hi")
    await caller.got("response.done")
    await caller.hang_up()
    return set(caller.types)


async def _with_tools(unit: WatchedUnit, tools: Tools) -> set[str]:
    caller = Caller(unit)
    server = {"type": "mcp", "server_label": "a", "server_url": tools.url, "require_approval": "never"}
    caller.configure(tools=[server, {**server, "server_label": "b", "server_url": f"{tools.origin}/b"}])
    await caller.got("mcp_list_tools.completed")
    await caller.got("mcp_list_tools.failed")
    for count, (name, end) in enumerate([("get_weather", "completed"), ("fail", "failed")], 1):
        caller.write("hi", tool_choice={"type": "mcp", "server_label": "a", "name": name})
        await caller.got("response.done", count)
        await caller.got(f"response.mcp_call.{end}")
    await caller.hang_up()
    return set(caller.types)


async def _heard(caller: Caller) -> None:
    """Hear the answer to its end."""
    await caller.unit.eventually(lambda: not caller.unit.outstanding - {caller.session.scope})
    caller.listen(30_000)
    await asyncio.sleep(0)
