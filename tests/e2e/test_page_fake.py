"""The page in a real Chromium against the server inside the page (``client_web/tests/fakes/loopback.js``).

No models and no Python peers: what is tested is what a person sees, for everything that a server and a
browser can do. The files come from the real page handler, so its content security policy holds.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, ConsoleMessage, Locator, Page, async_playwright, expect

from server.page import client_web_dir, setup_page
from server.settings import Settings
from tests.e2e.browser import CHROMIUM
from tests.protocol.tapped import note
from tests.protocol.validate_event import Validator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MICROPHONE = "--use-fake-device-for-media-stream"
GRANTED = "--use-fake-ui-for-media-stream"
FAKE = client_web_dir() / "tests" / "fakes" / "loopback.js"

STOPPING = {
    "type": "server_error",
    "code": "server_shutting_down",
    "message": "The server is being restarted.",
    "param": None,
    "event_id": None,
}
FAST = """
window.waits = [];
const wait = setTimeout;
window.setTimeout = (done, ms) => {
  waits.push(ms);
  return wait(done, ms / 20);
};
"""
"""Time passes twenty times as fast for whoever waits, and what was waited for is noted, in milliseconds."""

REPLY = "It is four degrees in Oslo right now, with light rain until the evening."


class Browsers:
    """One Chromium for each set of flags. Tests have a context of their own in it."""

    async def open(self, stack: AsyncExitStack) -> None:
        """``stack`` closes them."""
        self._stack = stack
        self._chromium = (await stack.enter_async_context(async_playwright())).chromium
        self._running: dict[tuple[str, ...], Browser] = {}

    async def get(self, *flags: str) -> Browser:
        if flags not in self._running:
            browser = await self._chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
            self._stack.push_async_callback(browser.close)
            self._running[flags] = browser
        return self._running[flags]


BROWSERS = Browsers()


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _browsers() -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        await BROWSERS.open(stack)
        yield


@asynccontextmanager
async def page_folder(host: str) -> AsyncIterator[str]:
    app = web.Application()
    setup_page(app, Settings())
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://{host}:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def opened(
    *flags: str, before: str = "", host: str = "127.0.0.1", **context: Any
) -> AsyncIterator[Page]:
    """The page with the fake server, not started yet. It fails on any foreign request or script error."""
    faults: list[str] = []
    browser = await BROWSERS.get(*(flags or (MICROPHONE, GRANTED)))
    async with page_folder(host) as url, await browser.new_context(**context) as alone:
        page = await alone.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda line: faults.append(line.text) if _is_fault(line) else None)
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((url, "blob:")) else faults.append(f"request to {request.url}")
            ),
        )
        await page.add_init_script(path=FAKE)
        if before:
            await page.add_init_script(before)
        await page.goto(url)
        yield page
        await check_shapes(page)
    assert faults == []


def _is_fault(line: ConsoleMessage) -> bool:
    """That the browser passes over a header is what it says of every page that comes over plain HTTP."""
    return line.type == "error" and not line.text.startswith("The Cross-Origin-Opener-Policy header")


async def check_shapes(page: Page) -> None:
    """The fake server, too, sends what a server sends."""
    script = "() => (window.duologue?.events ?? []).filter(({from}) => from === 'server').map(e => e.event)"
    for event in [] if page.is_closed() else await page.evaluate(script):
        for problem in Validator().check(event):
            note(problem)


async def phase(page: Page, name: str, limit_s: float = 8) -> None:
    await expect(page.locator("main")).to_have_attribute("data-phase", name, timeout=limit_s * 1000)


async def problem(page: Page, code: str, limit_s: float = 8) -> None:
    await expect(page.get_by_test_id("problem")).to_have_attribute("data-code", code, timeout=limit_s * 1000)


async def fake(page: Page, script: str, argument: Any = None) -> Any:
    return await page.evaluate(f"(argument) => fakeServer.{script}", argument)


async def sent(page: Page, *types: str) -> None:
    """Wait until these are the last that reached the server: they travel after the page has shown them."""
    last = f"fakeServer.received.slice(-{len(types)}).map(({{type}}) => type).join()"
    await page.wait_for_function(f"types => {last} === types.join()", arg=list(types), timeout=8000)


async def asked_again(page: Page) -> None:
    """Wait until the page has asked the server something, twice: so it has read the first answer."""
    before = len(await fake(page, "requests"))
    await page.wait_for_function("n => fakeServer.requests.length > n", arg=before + 1)


async def started(page: Page) -> None:
    await page.get_by_test_id("start").click()
    await phase(page, "listening")


async def answering(page: Page, text: str = REPLY) -> dict[str, str]:
    ids: dict[str, str] = await fake(page, "reply(argument)", text)
    await phase(page, "assistantSpeaking")
    return ids


async def test_a_call_goes_from_start_through_a_turn_to_the_end() -> None:
    async with opened() as page:
        await phase(page, "idle")
        await started(page)
        await expect(page.get_by_test_id("end")).to_be_focused()
        user = await fake(page, "startSpeech()")
        await phase(page, "userSpeaking")
        await fake(page, "endSpeech(argument)", user)
        await phase(page, "thinking")
        await fake(page, "transcribe(argument, 'How cold is it?')", user)
        reply = await answering(page)
        await fake(page, f"generated(argument, {REPLY!r})", reply)
        await page.wait_for_function(
            "() => duologue.events.some(({event}) => event.type === 'response.done')"
        )
        await phase(page, "assistantSpeaking")
        rows = page.get_by_test_id("transcript").locator("li")
        await expect(rows.nth(1)).to_contain_text("first sound")  # heard: only then can it have been played
        await fake(page, "played(argument)", reply)
        await phase(page, "listening")
        await expect(rows).to_have_count(2)
        await expect(rows.nth(0)).to_contain_text("How cold is it?")
        await expect(rows.nth(1)).to_contain_text(REPLY)
        await expect(rows.nth(1)).to_contain_text(re.compile(r"first sound \d\.\d\d s"))
        await page.get_by_test_id("end").click()
        await phase(page, "ended")
        assert {"url": "/v1/realtime/calls/rtc_fake_1/hangup", "method": "POST"} in await fake(
            page, "requests"
        )


async def test_the_session_is_opened_with_transcription() -> None:
    async with opened() as page:
        await started(page)
        update = (await fake(page, "received"))[0]
        assert update["session"]["type"] == "realtime"
        assert update["session"]["audio"]["input"]["transcription"] == {"model": "whisper-1"}


async def test_what_was_not_heard_is_struck_through_after_a_barge_in() -> None:
    async with opened() as page:
        await started(page)
        reply = await answering(page)
        row = page.locator(f"[data-item-id={reply['item']}]")
        await expect(row.locator(".heard")).to_contain_text("It is four")
        await fake(page, "bargeIn(argument, 1200)", reply)
        await expect(row).to_have_attribute("data-status", "interrupted")
        await expect(row.locator("del")).to_contain_text("until the evening.")
        assert (await row.locator(".row-text").text_content()) == REPLY
        await phase(page, "userSpeaking")
        await page.wait_for_function(
            "() => fakeServer.received.some(({type}) => type === 'conversation.item.retrieve')"
        )


async def test_the_text_of_an_answer_follows_the_voice() -> None:
    async with opened() as page:
        await started(page)
        reply = await answering(page)
        row = page.locator(f"[data-item-id={reply['item']}]")
        lengths = [len(await row.locator(".heard").text_content() or "")]
        for _ in range(3):
            await page.wait_for_function(
                "([id, before]) => document.querySelector(`[data-item-id=${id}] .heard`)"
                ".textContent.length > before",
                arg=[reply["item"], lengths[-1]],
            )
            lengths.append(len(await row.locator(".heard").text_content() or ""))
        assert lengths[-1] < len(REPLY)
        await fake(page, f"generated(argument, {REPLY!r})", reply)
        await fake(page, "played(argument)", reply)
        await expect(row.locator(".heard")).to_have_text(REPLY)


async def test_stop_silences_the_answer_at_once() -> None:
    async with opened() as page:
        await started(page)
        reply = await answering(page)
        await page.keyboard.press("Escape")
        await phase(page, "interrupted")
        await phase(page, "listening")
        await sent(page, "response.cancel", "output_audio_buffer.clear")
        row = page.locator(f"[data-item-id={reply['item']}]")
        await expect(row).to_have_attribute("data-status", "stopped")


async def test_muting_silences_the_microphone_and_nothing_else() -> None:
    keep = (
        "const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
        "navigator.mediaDevices.getUserMedia = async (c) => (window.mic = await ask(c));"
    )
    async with opened(before=keep) as page:
        await started(page)
        await answering(page)
        mute = page.get_by_test_id("mute")
        for pressed, enabled in (("true", False), ("false", True)):
            await page.keyboard.press("m")
            await expect(mute).to_have_attribute("aria-pressed", pressed)
            assert await page.evaluate("mic.getAudioTracks()[0].enabled") is enabled
            assert await page.evaluate("document.querySelector('audio').paused") is False
        await phase(page, "assistantSpeaking")
        await page.get_by_test_id("end").click()
        assert await page.evaluate("mic.getAudioTracks()[0].readyState") == "ended"


async def test_typing_stops_the_voice_and_asks_for_an_answer() -> None:
    async with opened() as page:
        await started(page)
        await answering(page)
        message = page.get_by_test_id("message")
        await message.fill("hello")
        await message.press("Enter")
        await phase(page, "thinking")
        await sent(
            page,
            "response.cancel",
            "output_audio_buffer.clear",
            "conversation.item.create",
            "response.create",
        )
        await expect(page.locator("[data-role=user]")).to_contain_text("hello")


async def test_a_call_without_a_microphone_is_begun_by_typing_and_is_answered_aloud() -> None:
    async with opened("--mute-audio") as page:
        await fake(page, "answers = true")
        await page.get_by_test_id("message").fill("Is anybody there?")
        await page.get_by_test_id("send").click()
        await phase(page, "assistantSpeaking")
        await expect(page.get_by_test_id("mute")).to_be_hidden()
        await expect(page.locator("[data-role=assistant]")).to_contain_text("first sound")


async def test_a_refused_microphone_says_how_to_allow_it_and_offers_text() -> None:
    async with opened(MICROPHONE) as page:
        await page.get_by_test_id("start").click()
        await problem(page, "mic-denied")
        await phase(page, "error")
        await expect(page.locator("#problem-title")).to_be_focused()
        assert await page.locator("#problem-remedy li").count() == 3
        await page.get_by_role("button", name="Use text instead").click()
        await phase(page, "listening")


async def test_a_missing_microphone_is_not_called_refused() -> None:
    async with opened(GRANTED) as page:
        await page.get_by_test_id("start").click()
        await problem(page, "mic-missing")
        await expect(page.get_by_role("button", name="Search again")).to_be_visible()


async def test_a_page_that_comes_over_plain_http_is_blocked_but_can_be_typed_at() -> None:
    """Browsers take the microphone away from it: there is no ``navigator.mediaDevices``."""
    name = "voice.test"
    flags = (f"--host-resolver-rules=MAP {name} 127.0.0.1", MICROPHONE, GRANTED)
    async with opened(*flags, host=name) as page:
        assert await page.evaluate("navigator.mediaDevices === undefined")
        await phase(page, "blocked")
        await problem(page, "insecure-context")
        await expect(page.get_by_test_id("problem")).to_contain_text(re.compile("https|localhost"))
        await expect(page.get_by_test_id("start")).to_be_disabled()
        await page.get_by_role("button", name="Use text").click()
        await phase(page, "listening")


async def test_a_permission_given_after_leaving_is_given_back() -> None:
    late = (
        "const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
        "navigator.mediaDevices.getUserMedia = (c) => new Promise((resolve) => {"
        "  window.grant = async () => { window.mic = await ask(c); resolve(mic); };"
        "});"
    )
    async with opened(before=late) as page:
        await page.get_by_test_id("start").click()
        await phase(page, "asking")
        await page.get_by_test_id("end").click()
        await phase(page, "ended")
        await page.evaluate("grant()")
        await page.wait_for_function("() => mic.getAudioTracks()[0].readyState === 'ended'")
        await phase(page, "ended")


@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        ("down = true", "server-down", "did not answer"),
        ("refusals.push({status: 503, code: 'pool_full', retryAfter: 7})", "busy", "Trying again in"),
        (
            "refusals.push({status: 503, code: 'model_loading', retryAfter: 7})",
            "server-starting",
            "models are loading",
        ),
        (
            "refusals.push({status: 503, code: 'shutting_down', retryAfter: 7})",
            "server-stopping",
            "being updated",
        ),
        ("refusals.push({status: 502})", "server-down", "did not answer"),
        ("refusals.push({status: 401, code: 'invalid_api_key'})", "auth", "needs a key"),
        (
            "refusals.push({status: 429, code: 'rate_limit_exceeded', message: 'Only 5.', retryAfter: 7})",
            "too-often",
            re.compile(r"Only 5\..*Trying again in [67] s", re.DOTALL),
        ),
        (
            "refusals.push({status: 429, code: 'too_many_sessions', message: 'Only 2.', retryAfter: 2})",
            "key-busy",
            "Only 2.",
        ),
        (
            "refusals.push({status: 503, code: 'no_media_port', message: 'No port.', retryAfter: 2})",
            "server-http",
            "No port.",
        ),
        ("refusals.push({status: 400, message: 'No audio.'})", "server-http", "No audio."),
    ],
)
async def test_a_call_that_is_refused_says_why_and_can_be_tried_again(
    trouble: str, code: str, words: str | re.Pattern[str]
) -> None:
    async with opened() as page:
        await fake(page, trouble)
        await page.get_by_test_id("start").click()
        await problem(page, code)
        await phase(page, "error")
        await expect(page.get_by_test_id("problem")).to_contain_text(words)
        await fake(page, "down = false")
        await page.locator("[data-action=retry]").click()
        await phase(page, "listening")
        await expect(page.get_by_test_id("problem")).to_be_hidden()


async def test_a_call_that_the_server_ends_says_why_in_the_servers_words() -> None:
    async with opened() as page:
        await started(page)
        why = "Nothing has happened in your session for 900 seconds."
        error = {**STOPPING, "type": "invalid_request_error", "code": "session_expired", "message": why}
        await fake(page, "send(argument)", {"type": "error", "error": error})
        await page.wait_for_function("() => duologue.events.some(({event}) => event.type === 'error')")
        await fake(page, "drop()")
        await problem(page, "expired")
        await expect(page.locator("#problem-title")).to_have_text("The server ended the call")
        await expect(page.locator("#problem-cause")).to_have_text(why)


async def test_a_full_server_is_asked_again_without_a_click() -> None:
    async with opened() as page:
        await fake(page, "refusals.push({status: 503, code: 'pool_full', retryAfter: 1})")
        await page.get_by_test_id("start").click()
        await problem(page, "busy")
        await phase(page, "listening")


async def test_a_server_that_did_not_answer_is_called_so_everywhere_until_it_does() -> None:
    async with opened() as page:
        health = page.locator("#health")
        await expect(health).to_have_text("Server ready")
        await fake(page, "down = true")
        await page.get_by_test_id("start").click()
        await problem(page, "server-down")
        await expect(health).to_have_text("Server not reachable")
        await fake(page, "down = false")
        await expect(health).to_have_text("Server ready")


async def test_a_server_that_never_answers_is_given_up_after_twelve_seconds() -> None:
    async with opened(before=FAST) as page:
        await fake(page, "hang = true")
        await page.get_by_test_id("start").click()
        await phase(page, "connecting")
        await problem(page, "connect-timeout")
        assert 12_000 in await page.evaluate("waits")


async def test_a_server_that_never_greets_is_given_up_after_twelve_seconds() -> None:
    async with opened(before=FAST) as page:
        await fake(page, "greets = false")
        await page.get_by_test_id("start").click()
        await problem(page, "connect-timeout")
        assert 12_000 in await page.evaluate("waits")
        await page.locator("#problem-detail-box summary").click()
        await expect(page.locator("#problem-detail")).to_contain_text("session")


async def test_a_lost_connection_comes_back_with_the_conversation_and_the_mute() -> None:
    async with opened() as page:
        await started(page)
        await fake(page, "hear('Remember the number seven.')")
        await page.get_by_test_id("mute").click()
        await fake(page, "drop()")
        await phase(page, "reconnecting")
        await expect(page.get_by_test_id("hint")).to_have_text("Trying again…")
        await phase(page, "listening")
        await expect(page.locator("[data-role=user]")).to_have_count(1)
        await expect(page.get_by_test_id("mute")).to_have_attribute("aria-pressed", "true")
        told = [
            event for event in await fake(page, "received") if event["type"] == "conversation.item.create"
        ]
        assert told[0]["item"]["content"] == [{"type": "input_text", "text": "Remember the number seven."}]


async def test_each_connection_asks_for_a_login_of_its_own() -> None:
    watch = (
        "window.used = [];"
        "const Native = RTCPeerConnection;"
        "window.RTCPeerConnection = class extends Native {"
        "  constructor(config) { super(config); if (config) used.push(config.iceServers[0].username); } };"
    )

    async def tell(page: Page, name: str) -> None:
        server = {"urls": ["turn:127.0.0.1:9?transport=tcp"], "username": name, "credential": "c"}
        await fake(page, "iceServers = [argument]", server)

    async with opened(before=watch) as page:
        await tell(page, "first")
        await started(page)
        await tell(page, "second")
        await fake(page, "drop()")
        await page.wait_for_function("() => used.length > 1")
        await phase(page, "listening")
        assert await page.evaluate("used") == ["first", "second"]


QUICK = """
    const wait = setTimeout, now = performance.now.bind(performance);
    window.setTimeout = (f, ms) => wait(f, ms / 20);
    performance.now = () => now() * 20;
"""
"""As fast, for a page that also looks at the time: three minutes are nine seconds."""


async def test_a_connection_that_does_not_come_back_ends_in_words_after_three_minutes() -> None:
    async with opened(before=QUICK) as page:
        await started(page)
        await fake(page, "down = true")
        await fake(page, "drop()")
        await phase(page, "reconnecting")
        await problem(page, "dropped", limit_s=20)
        asked = [request["url"] for request in await fake(page, "requests")]
        assert asked.count("/v1/realtime/calls") == 1
        assert asked.count("/readyz") > 20
        await fake(page, "down = false")
        await page.locator("[data-action=retry]").click()
        await phase(page, "listening")


async def test_a_restart_of_the_server_is_waited_for_and_the_call_goes_on() -> None:
    async with opened() as page:
        await started(page)
        await fake(page, "hear('Remember the number seven.')")
        reply = await answering(page)
        await fake(page, f"generated(argument, {REPLY!r})", reply)
        announcement = {"type": "error", "error": STOPPING}
        await fake(page, "send(argument)", announcement)
        await page.wait_for_function("() => duologue.events.some(({event}) => event.type === 'error')")
        await phase(page, "assistantSpeaking")
        await expect(page.get_by_test_id("hint")).to_contain_text("about to be updated")
        await expect(page.locator("#say-status")).to_contain_text("about to be updated")
        health = page.locator("#health")
        await expect(health).to_have_attribute("data-health", "stopping")
        await expect(page.get_by_test_id("problem")).to_be_hidden()
        await fake(page, "played(argument)", reply)
        await fake(page, "status = 'stopping'")
        await fake(page, "drop()")
        await phase(page, "reconnecting")
        for trouble in ("status = 'stopping'", "down = true", "status = 'loading'; fakeServer.down = false"):
            await fake(page, trouble)
            await asked_again(page)
            await expect(page.get_by_test_id("state")).to_have_text("The server is being updated")
            await expect(page.get_by_test_id("hint")).to_have_text("Your call goes on by itself in a moment.")
            await expect(health).to_have_attribute("data-health", re.compile("stopping|loading"))
            await expect(page.get_by_test_id("end")).to_be_visible()
            await expect(page.get_by_test_id("mute")).to_be_visible()
        await fake(page, "status = 'ready'")
        await phase(page, "listening")
        await sent(page, "conversation.item.create", "conversation.item.create")
        rows = page.get_by_test_id("transcript").locator("li")
        await expect(rows).to_have_count(2)
        await expect(rows.nth(1)).to_contain_text(REPLY)
        told = [event["item"] for event in (await fake(page, "received"))[-2:]]
        assert [item["content"][0]["text"] for item in told] == ["Remember the number seven.", REPLY]
        await expect(health).to_have_attribute("data-health", "ready")
        hung_up = [each["url"] for each in await fake(page, "requests") if each["url"].endswith("/hangup")]
        assert hung_up == [], "the server had ended it"


async def test_a_call_that_waits_for_a_restart_can_be_ended() -> None:
    async with opened() as page:
        await started(page)
        await fake(page, "send(argument)", {"type": "error", "error": STOPPING})
        await fake(page, "down = true")
        await fake(page, "drop()")
        await phase(page, "reconnecting")
        await page.get_by_test_id("end").click()
        await phase(page, "ended")
        await fake(page, "down = false")
        await expect(page.locator("#health")).to_have_attribute("data-health", "ready", timeout=8000)
        assert [each["url"] for each in await fake(page, "requests")].count("/v1/realtime/calls") == 1


async def test_a_first_call_to_a_server_that_stops_begins_by_itself_on_the_next() -> None:
    async with opened() as page:
        await fake(page, "refusals.push({status: 503, code: 'shutting_down'})")
        await fake(page, "down = false")
        await page.get_by_test_id("start").click()
        await problem(page, "server-stopping")
        await fake(page, "down = true")
        await asked_again(page)
        await problem(page, "server-stopping")
        await fake(page, "down = false")
        await phase(page, "listening")
        await expect(page.get_by_test_id("problem")).to_be_hidden()


async def test_sound_is_unlocked_in_the_click_before_the_microphone_is_waited_for() -> None:
    watch = (
        "window.calls = [];"
        "const play = HTMLMediaElement.prototype.play;"
        "HTMLMediaElement.prototype.play = function () { calls.push('play'); return play.call(this); };"
        "const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
        "navigator.mediaDevices.getUserMedia = (c) => { calls.push('ask');"
        "  return new Promise((resolve) => { window.grant = () => resolve(ask(c)); }); };"
    )
    flags = ("--autoplay-policy=document-user-activation-required", MICROPHONE, GRANTED)
    async with opened(*flags, before=watch) as page:
        await page.get_by_test_id("start").click()
        await phase(page, "asking")
        assert await page.evaluate("calls") == ["play", "ask"]
        await page.evaluate("grant()")
        await phase(page, "listening")
        await page.wait_for_function("() => !document.querySelector('#speaker').paused")
        await expect(page.get_by_test_id("hear")).to_be_hidden()


async def test_blocked_sound_is_one_tap_away() -> None:
    refuse = (
        "const play = HTMLMediaElement.prototype.play;"
        "HTMLMediaElement.prototype.play = function () { return window.allowed ? play.call(this)"
        " : Promise.reject(new DOMException('x', 'NotAllowedError')); };"
    )
    async with opened(before=refuse) as page:
        await started(page)
        hear = page.get_by_test_id("hear")
        await expect(hear).to_be_visible()
        await page.evaluate("allowed = true")
        await hear.click()
        await expect(hear).to_be_hidden()


async def test_the_pause_before_the_reply_is_changed_during_a_call() -> None:
    async with opened() as page:
        await started(page)
        await page.get_by_test_id("settings-open").click()
        await page.get_by_text("Short", exact=True).click()
        await page.wait_for_function("() => fakeServer.received.length > 1")
        update = (await fake(page, "received"))[-1]
        detection = update["session"]["audio"]["input"]["turn_detection"]
        assert detection == {"type": "server_vad", "silence_duration_ms": 300}
        await page.keyboard.press("Escape")
        await expect(page.get_by_test_id("settings-open")).to_be_focused()
        await phase(page, "listening")


@pytest.mark.breaks_the_protocol
async def test_events_that_are_unknown_or_half_empty_are_tolerated() -> None:
    async with opened() as page:
        await started(page)
        for name in ("rate_limits.updated", "mcp_list_tools.completed", "conversation.created", "x.unknown"):
            await fake(page, "send({type: argument, item: null, response: null})", name)
        for name in ("conversation.item.added", "response.done", "error", "session.updated"):
            await fake(page, "send({type: argument})", name)
        await page.wait_for_function("() => duologue.events.filter(e => e.from === 'server').length >= 10")
        await phase(page, "listening")


async def test_markup_in_a_text_stays_text() -> None:
    async with opened() as page:
        await started(page)
        await fake(page, "hear('<img src=x onerror=\"window.hit = 1\">')")
        await expect(page.locator("[data-role=user]")).to_contain_text("<img src=x")
        assert await page.evaluate("window.hit") is None


async def test_a_narrow_phone_scrolls_only_downwards() -> None:
    async with opened(viewport={"width": 320, "height": 640}, has_touch=True) as page:
        await started(page)
        await answering(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        for name in ("mute", "end", "stop", "message", "send"):
            box = await page.get_by_test_id(name).bounding_box()
            assert box, name
            assert 0 <= box["x"] <= 320 - box["width"], name
            assert box["height"] >= 44, name
        await page.locator("#sheet-toggle").click()
        await expect(page.locator("[data-role=assistant]")).to_be_visible()
        await expect(page.get_by_test_id("end")).to_be_visible()


async def test_on_a_narrow_phone_nothing_lies_over_what_is_in_the_way() -> None:
    async with opened(viewport={"width": 320, "height": 640}, has_touch=True) as page:
        await fake(page, "refusals.push({status: 503, code: 'shutting_down', retryAfter: 7})")
        await page.get_by_test_id("start").click()
        await problem(page, "server-stopping")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320
        await within_reach(page, page.get_by_role("button", name="Try now"))
        await page.get_by_role("button", name="Stop waiting").click()
        await phase(page, "idle")
        await within_reach(page, page.get_by_test_id("start"))


async def within_reach(page: Page, *things: Locator) -> None:
    """They are on the screen as a whole and under nothing; and nothing runs off to the right."""
    uncovered = """(element) => {
        const {left, right, top, bottom} = element.getBoundingClientRect();
        const x = (left + right) / 2, y = (top + bottom) / 2;
        const edges = [[left + 2, y], [right - 2, y], [x, top + 2], [x, bottom - 2]];
        return edges.every(([x, y]) => element.contains(document.elementFromPoint(x, y)));
    }"""
    for thing in things:
        await expect(thing).to_be_visible()
        assert await thing.evaluate(uncovered), f"{thing} is not all there"
    wide = """[...document.querySelectorAll('html, main, .middle, .pill, .call-button')]
        .filter(({scrollWidth, clientWidth}) => scrollWidth > clientWidth).map(({outerHTML}) => outerHTML)"""
    assert await page.evaluate(wide) == []


SMALL = pytest.mark.parametrize(("width", "height"), [(320, 568), (375, 667)])
BOTH_KEPT = "fakeServer.kept = {recording: true, transcripts: true};"


@SMALL
async def test_on_a_small_phone_the_buttons_of_a_call_are_always_within_reach(
    width: int, height: int
) -> None:
    async with opened(before=BOTH_KEPT, viewport={"width": width, "height": height}) as page:
        await expect(page.get_by_test_id("notice")).to_be_visible()
        start, end, mute = (page.get_by_test_id(name) for name in ("start", "end", "mute"))
        health = page.locator("#health")
        await expect(health).to_have_text("Server ready")
        await within_reach(page, start, health)
        await started(page)
        await fake(page, "hear('How cold is it in Oslo, and will it rain before the evening comes?')")
        await answering(page)
        await expect(page.locator("#caption-assistant")).to_contain_text("Oslo right now, with light rain")
        await within_reach(page, end, mute, page.get_by_test_id("stop"))
        await fake(page, "status = 'stopping'")
        await fake(page, "drop()")
        await expect(page.get_by_test_id("state")).to_have_text("The server is being updated")
        await within_reach(page, end, mute)
        await end.click()
        await phase(page, "ended")
        await within_reach(page, start)


async def test_where_captions_do_not_fit_their_end_is_shown() -> None:
    async with opened(before=BOTH_KEPT, viewport={"width": 320, "height": 480}) as page:
        await started(page)
        await fake(page, "hear('How cold is it in Oslo, and will it rain before the evening comes?')")
        await answering(page)
        caption = page.locator("#caption-assistant")
        await expect(caption).to_contain_text("Oslo right now, with light rain")
        end = await caption.evaluate("(element) => element.getBoundingClientRect().bottom")
        space = await page.locator(".middle").evaluate("(element) => element.getBoundingClientRect().bottom")
        assert end <= space


@SMALL
async def test_with_the_conversation_open_a_note_is_within_reach(width: int, height: int) -> None:
    async with opened(before=BOTH_KEPT, viewport={"width": width, "height": height}) as page:
        await fake(page, "refusals.push({status: 401, code: 'invalid_api_key'})")
        await page.locator("#sheet-toggle").click()
        await page.get_by_test_id("start").click()
        await problem(page, "auth")
        await within_reach(
            page, page.locator("#problem-title"), page.get_by_role("button", name="Use this key")
        )


@SMALL
async def test_on_a_small_phone_a_key_can_be_entered(width: int, height: int) -> None:
    async with opened(before=BOTH_KEPT, viewport={"width": width, "height": height}) as page:
        await fake(page, "refusals.push({status: 401, code: 'invalid_api_key'})")
        await page.get_by_test_id("start").click()
        await problem(page, "auth")
        await within_reach(page, page.get_by_test_id("key"), page.get_by_role("button", name="Use this key"))


@SMALL
async def test_on_a_small_phone_a_refused_microphone_leaves_both_ways_out(width: int, height: int) -> None:
    async with opened(MICROPHONE, before=BOTH_KEPT, viewport={"width": width, "height": height}) as page:
        await page.get_by_test_id("start").click()
        await problem(page, "mic-denied")
        ways = [page.get_by_role("button", name=name) for name in ("Try again", "Use text instead")]
        await within_reach(page, *ways)


async def test_a_caller_is_told_in_every_state_that_calls_are_recorded() -> None:
    kept = "fakeServer.kept = {recording: true, transcripts: false};"
    async with opened(before=kept, viewport={"width": 320, "height": 480}) as page:
        notice = page.get_by_test_id("notice")

        async def told(name: str, words: str = "Calls on this server are recorded.") -> None:
            await phase(page, name)
            await expect(notice).to_have_text(words)
            box = await notice.bounding_box()
            assert box, name
            assert 0 <= box["x"] <= 320 - box["width"], name
            assert 0 <= box["y"] <= 480 - box["height"], name
            assert await page.evaluate("document.scrollingElement.scrollTop") == 0

        await told("idle")
        await expect(page.get_by_role("status").filter(has_text="are recorded")).to_have_count(1)
        await expect(page.get_by_test_id("start")).to_have_accessible_description(
            "Calls on this server are recorded."
        )
        await fake(page, "kept = {recording: true, transcripts: true}")
        both = "Calls on this server are recorded and written down."
        await started(page)
        await told("listening", both)
        await expect(page.locator("#say-status")).to_have_text(f"Connected. {both}")
        user = await fake(page, "startSpeech()")
        await told("userSpeaking", both)
        await fake(page, "endSpeech(argument)", user)
        await told("thinking", both)
        await answering(page)
        await told("assistantSpeaking", both)
        await page.locator("#sheet-toggle").click()
        await told("assistantSpeaking", both)
        await fake(page, "drop()")
        await told("reconnecting", both)
        await told("listening", both)
        await page.get_by_test_id("end").click()
        await told("ended", both)
        await fake(page, "kept = {recording: false, transcripts: true}")
        await fake(page, "refusals.push({status: 400, code: 'invalid_offer'})")
        await page.get_by_test_id("start").click()
        await told("error", "Calls on this server are written down.")


async def test_a_server_that_keeps_nothing_says_nothing_of_it() -> None:
    async with opened() as page:
        notice = page.get_by_test_id("notice")
        await page.wait_for_function("() => fakeServer.requests.some(r => r.url.endsWith('/notice.json'))")
        await started(page)
        await expect(notice).to_have_text("")
        await expect(notice).to_be_hidden()
        await expect(page.locator("#say-status")).to_have_text("Connected")


async def test_reduced_motion_runs_no_animation() -> None:
    async with opened(reduced_motion="reduce") as page:
        await started(page)
        user = await fake(page, "startSpeech()")
        await fake(page, "endSpeech(argument)", user)
        await phase(page, "thinking")
        assert await page.evaluate("document.getAnimations().length") == 0
