"""A server that is told to stop: nobody is cut off, and the page goes on with the next one."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession, ClientWebSocketResponse
from playwright.async_api import Page, expect

from tests.e2e.browser import chromium, events, heard, microphone_file, wait_for_event
from tests.e2e.relayed_caller import until
from tests.e2e.serving import SCRIPTED, Served, serving
from tests.e2e.test_deploy import free_port
from tests.server.fakes import Client
from tests.server.records.served import typed
from units.engines.scripted import SECONDS_PER_CHARACTER
from units.messages import EAR_RATE, Int16

pytestmark = pytest.mark.e2e

SPOKEN = "This answer is long enough to be going on while the server is told that it has to stop."
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
STOPPING = "Stopping: 1 call gets up to {} s to finish. Once more to stop at once."


@asynccontextmanager
async def conversation(url: str) -> AsyncIterator[ClientWebSocketResponse]:
    async with ClientSession() as client, client.ws_connect(f"{url}/v1/realtime") as socket:
        assert (await socket.receive_json(timeout=10))["type"] == "session.created"
        yield socket


async def owing_a_result(socket: ClientWebSocketResponse) -> None:
    """A function has been called in the conversation, and so something is going on."""
    await socket.send_json({"type": "conversation.item.create", "item": CALL})
    while (await socket.receive_json(timeout=10))["type"] != "conversation.item.done":
        pass


async def last_events(socket: ClientWebSocketResponse) -> list[dict[str, Any]]:
    """All until the server closes the connection because it goes away."""
    async with asyncio.timeout(20):
        received = [message.json() async for message in socket]
    assert socket.close_code == 1001
    return received


async def test_a_session_in_which_nothing_goes_on_ends_at_once() -> None:
    with serving(*SCRIPTED) as served:
        async with conversation(served.url) as socket:
            served.process.terminate()
            (event,) = await last_events(socket)
        assert (event["type"], event["error"]["type"]) == ("error", "server_error")
        assert event["error"]["code"] == "server_shutting_down"
        assert served.process.wait(20) == 0


async def test_a_session_in_which_something_goes_on_ends_when_its_time_is_over() -> None:
    with serving("--grace", "1.5", *SCRIPTED) as served:
        async with conversation(served.url) as socket:
            await owing_a_result(socket)
            told = time.monotonic()
            served.process.terminate()
            assert [event["type"] for event in await last_events(socket)] == ["error"]
            assert 1.5 <= time.monotonic() - told < 5
        assert served.wait_line("Stopping") == STOPPING.format("1.5")
        assert served.process.wait(20) == 0


async def test_of_three_calls_at_once_each_ends_as_it_can() -> None:
    """Nothing goes on in one, an answer is heard in the second, and the model of the third hangs."""
    answer, grace = "This is heard to its end.", 3.0
    flags = (*SCRIPTED, "--llm-backend=hanging", "--grace", f"{grace:g}")
    with serving(*flags, program=("-m", "tests.e2e.hanging")) as served:
        async with (
            ClientSession(served.url) as http,
            conversation(served.url) as idle,
            conversation(served.url) as hung,
        ):
            await hung.send_json(typed("[[hang]]"))
            await hung.send_json({"type": "response.create"})
            while (await hung.receive_json(timeout=10))["type"] != "response.created":
                pass
            speaking = await Client().add_audio().add_channel().call(http)
            await until(speaking, "session.created")
            for event in (typed(f"[[echo:{answer}]]"), {"type": "response.create"}):
                speaking.channel.send(json.dumps(event))
            await until(speaking, "output_audio_buffer.started")
            told = time.monotonic()
            served.process.terminate()
            assert [event["error"]["code"] for event in await last_events(idle)] == ["server_shutting_down"]
            rest = await until(speaking, "output_audio_buffer.stopped")
            assert time.monotonic() - told == pytest.approx(len(answer) * SECONDS_PER_CHARACTER, abs=0.5)
            assert [event["error"]["code"] for event in rest if "error" in event] == ["server_shutting_down"]
            assert [event["error"]["code"] for event in await last_events(hung)] == ["server_shutting_down"]
            assert grace <= time.monotonic() - told < grace + 2
            assert speaking.connection.connectionState == "closed"
        assert served.process.wait(20) == 0
    await speaking.close()


async def test_the_second_signal_ends_the_process_while_calls_finish() -> None:
    with serving(*SCRIPTED, exits=128 + signal.SIGINT) as served:
        async with conversation(served.url) as socket:
            await owing_a_result(socket)
            served.process.terminate()
            assert served.wait_line("Stopping") == STOPPING.format("20")
            served.process.send_signal(signal.SIGINT)
            assert served.process.wait(5) == 128 + signal.SIGINT


# In the browser


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def silence(tmp_path: Path) -> Path:
    return microphone_file(tmp_path / "silence.wav", np.zeros(EAR_RATE, np.float32))


async def phase(page: Page, name: str, limit_s: float = 20) -> None:
    await expect(page.locator("main")).to_have_attribute("data-phase", name, timeout=limit_s * 1000)


async def write(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.press("#message", "Enter")


async def write_for_the_first_time(page: Page, text: str) -> None:
    """Begin a call with the microphone, and type."""
    await page.click("#start")
    await phase(page, "listening")
    await write(page, text)
    await wait_for_event(page, "output_audio_buffer.started")


async def goes_on(page: Page, *rows: str) -> None:
    """The page is in a call again, still shows what was said, and what is typed now is answered."""
    await phase(page, "listening", limit_s=30)
    for row in rows:
        await expect(page.get_by_test_id("transcript")).to_contain_text(row)
    answers = len(await events(page, "response.done"))
    await write(page, "[[echo:Here I am again.]]")
    await wait_for_event(
        page, "output_audio_buffer.stopped", len(await events(page, "output_audio_buffer.stopped")) + 1
    )
    assert len(await events(page, "response.done")) == answers + 1
    await expect(page.locator("[data-role=assistant]").last).to_contain_text("Here I am again.")
    await expect(page.get_by_test_id("problem")).to_be_hidden()


def seconds_of_sound(samples: Int16) -> float:
    """From the first loud sample to the last."""
    (loud,) = np.nonzero(np.abs(samples) > 1000)
    return float(loud[-1] - loud[0]) / 48_000


async def refusals(served: Served) -> list[tuple[int, str]]:
    """How a server that stops answers a new call, a new session, and whoever asks how it is."""
    sdp = {"Content-Type": "application/sdp"}
    found: list[tuple[int, str]] = []
    async with ClientSession(served.url) as client:
        for method, path in (
            ("POST", "/v1/realtime/calls"),
            ("GET", "/v1/realtime"),
            ("POST", "/v1/realtime/client_secrets"),
            ("GET", "/v1/realtime?call_id=rtc_unknown"),
            ("DELETE", "/v1/realtime/calls/rtc_unknown"),
            ("GET", "/readyz"),
            ("GET", "/healthz"),
        ):
            headers = sdp if path.endswith("calls") else {"Upgrade": "websocket"} if method == "GET" else {}
            async with client.request(method, path, headers=headers) as response:
                body = await response.json()
                found.append((response.status, body["error"]["code"] if "error" in body else body["status"]))
    return found


async def test_an_answer_is_heard_to_its_end_and_the_call_goes_on_with_the_next_server(
    port: int, silence: Path
) -> None:
    with serving("--port", str(port), *SCRIPTED) as first:
        async with chromium(first.url, silence) as page:
            await write_for_the_first_time(page, f"[[echo:{SPOKEN}]]")
            first.process.terminate()
            assert await asyncio.to_thread(first.wait_line, "Stopping") == STOPPING.format("20")
            assert await refusals(first) == [
                (503, "shutting_down"),
                (503, "shutting_down"),
                (503, "shutting_down"),
                (404, "call_id_not_found"),
                (404, "call_id_not_found"),
                (503, "stopping"),
                (200, "ok"),
            ]
            await expect(page.get_by_test_id("state")).to_have_text("Speaking")
            await expect(page.get_by_test_id("hint")).to_contain_text("about to be updated")
            await wait_for_event(page, "output_audio_buffer.stopped")
            await phase(page, "reconnecting")
            await expect(page.get_by_test_id("state")).to_have_text("The server is being updated")
            length = seconds_of_sound(await heard(page))  # a busy browser loses a little of any answer
            assert length == pytest.approx(len(SPOKEN) * SECONDS_PER_CHARACTER, rel=0.1)
            await expect(page.locator("[data-role=assistant]")).to_have_attribute("data-status", "done")
            assert await asyncio.to_thread(first.process.wait, 20) == 0
            await page.wait_for_function("() => duologue.state.health === 'down'", timeout=10_000)
            await expect(page.locator("#health")).to_have_text("Server is being updated")
            await expect(page.get_by_test_id("state")).to_have_text("The server is being updated")
            with serving("--port", str(port), *SCRIPTED):
                await goes_on(page, SPOKEN)


async def test_the_page_goes_on_after_a_server_that_died(port: int, silence: Path) -> None:
    with serving("--port", str(port), *SCRIPTED, exits=-signal.SIGKILL) as first:
        async with chromium(first.url, silence) as page:
            await write_for_the_first_time(page, "[[echo:Soon I am gone.]]")
            await wait_for_event(page, "output_audio_buffer.stopped")
            first.process.kill()
            first.process.wait()
            await phase(page, "reconnecting", limit_s=40)
            await expect(page.get_by_test_id("state")).to_have_text("Connection lost")
            with serving("--port", str(port), *SCRIPTED):
                await goes_on(page, "Soon I am gone.")
