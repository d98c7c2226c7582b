"""The RealtimeSession of OpenAI's agents SDK for JavaScript, unmodified, in a browser: WebRTC, and WebSocket.

The page comes from another origin than the server, as pages of other people do.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from tests.clients.checks import too_late
from tests.clients.test_agents_js import Seen, answered, called, spoke, wrote
from tests.e2e.browser import chromium, heard, microphone_file
from tests.e2e.serving import SCRIPTED, Served, serving
from tests.units.caller import loud
from units.engines.scripted import ANSWER, LONG_ANSWER, SECONDS_PER_CHARACTER
from units.messages import Int16

pytestmark = pytest.mark.e2e

PAGE = "<!doctype html><title>Agents</title><audio></audio><script type=module src=/page.mjs></script>"
RATE = 48_000
LEAD_S = 3.0
"""Silence of the microphone before it speaks."""
GIVING_UP_S = 5.0
"""After this the client goes on without knowing that the server took its settings."""


@pytest.fixture(scope="module")
def listening() -> Iterator[socket.socket]:
    """Where the page comes from."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def origin_of(listening: socket.socket) -> str:
    return f"http://localhost:{listening.getsockname()[1]}"


@pytest.fixture(scope="module")
def served(listening: socket.socket) -> Iterator[Served]:
    """A server that the page may use."""
    with serving(*SCRIPTED, "--num-pipelines", "2", "--allow-origin", origin_of(listening)) as served:
        yield served


@pytest.fixture
async def page_url(agents_js: Path, listening: socket.socket) -> AsyncIterator[str]:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_static("/sdk", agents_js / "node_modules/@openai/agents-realtime/dist/bundle")
    app.router.add_static("/", agents_js)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.SockSite(runner, listening.dup()).start()
        yield origin_of(listening) + "/"
    finally:
        await runner.cleanup()


async def check(
    name: str, served: Served, page_url: str, microphone: Path, *given: float
) -> tuple[Seen, Int16]:
    """What a check saw, if it went through without an error, and what was heard."""
    async with chromium(page_url, microphone) as page:
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.wait_for_function("() => window.check")
        seen: Seen = await page.evaluate("given => window.check(...given)", [name, served.url, *given])
        sound = await heard(page)
    assert (
        [error for error in seen["errors"] if not (name == "stop_button" and too_late(error))] == faults == []
    )
    assert seen["callId"].startswith("rtc_")
    assert seen["connecting"] < GIVING_UP_S
    assert seen["playing"]
    return seen, sound


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    return microphone_file(tmp_path / "silent.wav", lead_s=1.0)


@pytest.fixture
def speaking(tmp_path: Path) -> Path:
    return microphone_file(tmp_path / "speaking.wav", loud(700), lead_s=LEAD_S, gap_s=1.0)


def seconds_of_sound(sound: Int16) -> float:
    """How long there was something to hear, in steps of 10 ms."""
    frames = np.abs(sound[: len(sound) // 480 * 480].astype(int)).reshape(-1, 480).max(axis=1)
    return float((frames > 1000).sum()) / 100


def length_of(text: str) -> Any:
    """How many seconds it takes to speak ``text``."""
    return pytest.approx(SECONDS_PER_CHARACTER * len(text), rel=0.1, abs=0.1)


async def test_a_written_turn_is_answered_aloud(served: Served, page_url: str, silent: Path) -> None:
    seen, sound = await check("text_turn", served, page_url, silent)
    assert seen["history"] == [wrote("Hello"), answered()]
    assert seen["answers"] == [ANSWER]
    assert (seen["instructions"], seen["deltas"]) == ("Be brief.", 0)
    assert seconds_of_sound(sound) == length_of(ANSWER)


async def test_a_tool_is_run_and_its_result_answered(served: Served, page_url: str, silent: Path) -> None:
    seen, _ = await check("tool_call", served, page_url, silent)
    assert seen["used"] == [{"city": "Oslo"}]
    call = called("get_weather", '{"city": "Oslo"}', "four degrees")
    answer = answered("The tool said: four degrees.")
    assert seen["history"] == [wrote("What is the weather like?"), call, answer]


async def test_a_spoken_turn_is_heard_and_answered(served: Served, page_url: str, speaking: Path) -> None:
    seen, sound = await check("voice_turn", served, page_url, speaking)
    assert seen["history"] == [spoke(), answered()]
    assert seconds_of_sound(sound) == length_of(ANSWER)


async def test_speaking_interrupts_and_the_history_has_what_was_heard(
    served: Served, page_url: str, speaking: Path
) -> None:
    seen, _ = await check("barge_in", served, page_url, speaking)
    asked, cut, *rest = seen["history"]
    assert (asked, rest) == (wrote("[[long]]"), [spoke(), answered()])
    assert seen["cleared"] == 1
    assert 500 < seen["audio_end_ms"] < 1000 * (LEAD_S + 1)
    assert len(cut["said"]) == pytest.approx(seen["audio_end_ms"] / 1000 / SECONDS_PER_CHARACTER, abs=8)
    assert LONG_ANSWER.startswith(cut["said"])


@pytest.mark.parametrize(
    ("name", "status"), [("stop_button", "cancelled"), ("late_stop_button", "completed")]
)
async def test_a_stop_button_silences_the_answer(
    served: Served, page_url: str, silent: Path, name: str, status: str
) -> None:
    seen, sound = await check(name, served, page_url, silent)
    assert seen["statuses"] == [status, "completed"]
    assert seen["history"][-1] == answered("Still here.")
    assert seconds_of_sound(sound) < 3.0


async def test_what_is_said_while_muted_is_not_heard(served: Served, page_url: str, tmp_path: Path) -> None:
    twice = microphone_file(tmp_path / "twice.wav", loud(700), loud(700), lead_s=2.0, gap_s=6.0)
    seen, _ = await check("muted", served, page_url, twice, 6.0)
    assert (seen["heard"], seen["then"]) == (0, 1)
    assert seen["history"] == [
        wrote("Hello"),
        answered(),
        wrote("What is the weather like?"),
        called("get_weather", '{"city": "Oslo"}', "four degrees"),
        answered("The tool said: four degrees."),
        spoke(),
        answered(),
    ]


async def test_a_closed_session_connects_again(served: Served, page_url: str, silent: Path) -> None:
    seen, _ = await check("reconnection", served, page_url, silent)
    assert seen["histories"] == [[wrote(f"[[echo:Turn {n}.]]"), answered(f"Turn {n}.")] for n in (1, 2)]
    assert seen["sessions"] == 2


async def test_a_page_may_use_a_websocket(served: Served, page_url: str) -> None:
    async with chromium(page_url) as page:
        await page.wait_for_function("() => window.checkSocket")
        seen: Seen = await page.evaluate("base => window.checkSocket(base)", served.url)
    answer = "The tool said: four degrees."
    assert (seen["errors"], seen["used"]) == ([], [{"city": "Oslo"}])
    call = called("get_weather", '{"city": "Oslo"}', "four degrees")
    assert seen["history"] == [wrote("What is the weather like?"), call, answered(answer)]
    assert seen["samples"] == pytest.approx(SECONDS_PER_CHARACTER * len(answer) * 24_000, rel=0.05)
