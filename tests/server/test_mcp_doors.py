"""MCP tools through both doors: a real client, a real server, a real MCP server, scripted engines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from server.calls import setup_calls
from server.client_secrets import setup_client_secrets
from server.socket import setup_sockets
from tests.mcp_server import Tools, mcp_server
from tests.server.fakes import Client, FakeSettings, ToneTrack
from tests.server.test_socket import CREATE, SCRIPTED, Doors, Json, Served, text, update
from tests.units.caller import Problems
from units import PipelineConfig, build_pipeline

OUTPUT = "four degrees in Oslo"
SILENT = {"input": {"turn_detection": None}}


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    with mcp_server() as tools:
        yield tools


@pytest.fixture
async def served(tools: Tools) -> AsyncIterator[Served]:
    config = PipelineConfig(
        vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED, mcp_servers=(tools.url,)
    )
    pipeline = build_pipeline(config)
    app, doors = web.Application(), Doors(pipeline)
    secrets = setup_client_secrets(app, doors)
    calls = setup_calls(app, doors, FakeSettings(), secrets)
    sockets = setup_sockets(app, doors, secrets, calls)
    pipeline.start()
    async with TestClient(TestServer(app)) as http:
        yield Served(http, sockets, pipeline)
    assert await pipeline.stop() == []


def session(tools: Tools, **members: Any) -> Json:
    server = {"type": "mcp", "server_label": "weather", "server_url": tools.url, "authorization": "s3cret"}
    return {"type": "realtime", "tools": [{**server, **members}]}


def approval(response: Json, approve: bool) -> Json:
    request_id = response["output"][-1]["id"]
    item = {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": approve}
    return {"type": "conversation.item.create", "item": item}


async def test_a_client_over_websocket_uses_a_tool(served: Served, tools: Tools) -> None:
    async with await served.dial() as caller:
        await caller.send(update(**session(tools)))
        await caller.event("mcp_list_tools.completed")
        await caller.send(text("What is the weather like?"), CREATE)
        await caller.send(approval((await caller.event("response.done"))["response"], True))
        await caller.event("response.mcp_call.completed")
        assert (await caller.event("response.output_item.done"))["item"]["output"] == OUTPUT
        await caller.send(CREATE)
        (item,) = (await caller.event("response.done"))["response"]["output"]
        assert item["content"][0]["transcript"] == f"The tool said: {OUTPUT}."
        assert len(caller.sound(item["id"])) > 10_000
        await caller.send(text("What is the weather like?"), CREATE)
        await caller.send(approval((await caller.event("response.done"))["response"], False))
        await caller.event("response.mcp_call.failed")
    assert "s3cret" not in str(caller.events)
    await served.free()


async def test_a_server_that_is_not_allowed_is_refused_over_websocket(served: Served, tools: Tools) -> None:
    async with await served.dial() as caller:
        await caller.send(update(**session(tools, server_url=f"{tools.origin}/elsewhere")))
        error = (await caller.event("error"))["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "session.tools[0].server_url")
    assert "--mcp-server" in error["message"]


async def test_an_ephemeral_key_carries_tools_and_shows_no_secret(served: Served, tools: Tools) -> None:
    key = await _key(served, session(tools, require_approval="never"))
    assert "s3cret" not in str(key)
    async with await served.dial(headers={"Authorization": f"Bearer {key['value']}"}) as caller:
        await caller.event("mcp_list_tools.completed")
    wrong = session(tools, server_url="http://127.0.0.1:1/")
    refused = await served.http.post("/v1/realtime/client_secrets", json={"session": wrong})
    assert refused.status == 400
    assert (await refused.json())["error"]["param"] == "session.tools[0].server_url"


async def _key(served: Served, wanted: Json) -> Json:
    made = await served.http.post("/v1/realtime/client_secrets", json={"session": wanted})
    assert made.status == 200
    key: Json = await made.json()
    return key


class Call:
    """A WebRTC client with what it was sent, held against the protocol."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.problems = Problems()

    async def event(self, kind: str) -> Json:
        """The next event of this type."""
        while True:
            event = await self.client.next_event()
            self.problems.look_at(event)
            if event["type"] == kind:
                return event

    def send(self, *events: Json) -> None:
        for event in events:
            self.client.channel.send(json.dumps(event))


@pytest.mark.e2e
async def test_a_caller_over_webrtc_uses_a_tool(served: Served, tools: Tools) -> None:
    client = Client()
    call = Call(client)
    client.add_audio(ToneTrack()).add_channel(update(**session(tools), audio=SILENT))
    await client.call(served.http)
    try:
        await call.event("mcp_list_tools.completed")
        call.send(text("What is the weather like?"), CREATE)
        call.send(approval((await call.event("response.done"))["response"], True))
        await call.event("response.mcp_call.completed")
        assert (await call.event("response.output_item.done"))["item"]["output"] == OUTPUT
        call.send(CREATE)
        (item,) = (await call.event("response.done"))["response"]["output"]
        assert item["content"][0]["transcript"] == f"The tool said: {OUTPUT}."
        await call.event("output_audio_buffer.stopped")
        assert any(np.abs(frame.to_ndarray()).max() > 1000 for frame in client.frames)
    finally:
        await client.close()
    assert call.problems == []
    await served.free()
