"""A client that owes the result of a tool, and does nothing: ``python -m tests.e2e.mid_tool DOOR URL``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession

from tests.server.fakes import Client, ToneTrack
from tests.server.records.served import typed

ASK = (
    {
        "type": "session.update",
        "session": {
            "type": "realtime",
            "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
        },
    },
    typed("How is the weather?"),
    {"type": "response.create"},
)

Receive = Callable[[], Awaitable[dict[str, Any]]]


@asynccontextmanager
async def webrtc(url: str) -> AsyncIterator[Receive]:
    """A call."""
    client = Client()
    async with ClientSession(url) as http:
        await client.add_audio(ToneTrack()).add_channel(*ASK).call(http)
        yield client.events.get


@asynccontextmanager
async def websocket(url: str) -> AsyncIterator[Receive]:
    """The same over the other door."""
    async with ClientSession(url) as http, http.ws_connect("/v1/realtime") as socket:
        for event in ASK:
            await socket.send_json(event)
        yield socket.receive_json


async def main(door: str, url: str) -> None:
    """Says so when the tool has been called, and never comes back."""
    async with {"webrtc": webrtc, "websocket": websocket}[door](url) as receive:
        while (await receive())["type"] != "response.function_call_arguments.done":
            pass
        sys.stdout.write("called\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
