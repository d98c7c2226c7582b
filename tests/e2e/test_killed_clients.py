"""Clients that are killed, and say no more to anybody."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from aiohttp import ClientSession

from tests.e2e.serving import SCRIPTED, serving

pytestmark = pytest.mark.e2e


def free_units(url: str) -> int:
    try:
        with urlopen(f"{url}/readyz") as response:
            return int(json.load(response)["free"])
    except HTTPError as full:
        return int(json.load(full)["free"])


async def first_events(url: str) -> list[str]:
    """Types of all that a new session is told until its first update is done."""
    async with ClientSession(url) as http, http.ws_connect("/v1/realtime") as socket:
        await socket.send_json({"type": "session.update", "session": {"type": "realtime"}})
        types = []
        while not types or types[-1] != "session.updated":
            types.append((await socket.receive_json(timeout=5))["type"])
        return types


@pytest.mark.parametrize("door", ["webrtc", "websocket"])
def test_a_client_killed_while_it_owes_a_result_leaves_its_unit_to_others(door: str) -> None:
    with serving(*SCRIPTED, "--num-pipelines", "1") as served:
        command = [sys.executable, "-m", "tests.e2e.mid_tool", door, served.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "called\n"
            assert free_units(served.url) == 0
            client.kill()
            killed = time.monotonic()
            while not free_units(served.url):
                assert time.monotonic() - killed < 10
                time.sleep(0.05)
        assert asyncio.run(first_events(served.url)) == ["session.created", "session.updated"]
