"""Calls from a real Chromium, with fake units."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Page, async_playwright

from server.calls import setup_calls
from server.client_secrets import ClientSecrets
from tests.server.fakes import FakePool, FakeSettings
from tests.server.test_calls_e2e import until

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

CALL = """async (kind) => {
  const pc = window.pc = new RTCPeerConnection();
  window.events = [];
  pc.ontrack = (event) => {
    const stream = event.streams[0];
    window.audio = new Audio();
    audio.srcObject = stream;
    audio.play();
    const context = new AudioContext();
    window.analyser = context.createAnalyser();
    analyser.fftSize = 4096;
    context.createMediaStreamSource(stream).connect(analyser);
  };
  if (kind.includes('microphone')) {
    const stream = await navigator.mediaDevices.getUserMedia({audio: true});
    pc.addTrack(stream.getTracks()[0], stream);
  }
  if (kind.includes('listen')) pc.addTransceiver('audio', {direction: 'recvonly'});
  if (kind.includes('video')) pc.addTransceiver('video');
  if (kind.includes('PCMU')) {
    const {codecs} = RTCRtpSender.getCapabilities('audio');
    pc.getTransceivers()[0].setCodecPreferences(codecs.filter((x) => x.mimeType === 'audio/PCMU'));
  }
  const channel = window.channel = pc.createDataChannel('oai-events');
  channel.onmessage = (event) => events.push(JSON.parse(event.data).type);
  channel.onopen = () => channel.send('{"type": "early"}');
  await pc.setLocalDescription(await pc.createOffer());
  const response = await fetch('/v1/realtime/calls', {
    method: 'POST', body: pc.localDescription.sdp, headers: {'Content-Type': 'application/sdp'},
  });
  await pc.setRemoteDescription({type: 'answer', sdp: await response.text()});
}"""

PITCH = """() => {
  if (!window.analyser) return 0;
  const bins = new Float32Array(analyser.frequencyBinCount);
  analyser.getFloatFrequencyData(bins);
  const loudest = bins.indexOf(Math.max(...bins));
  return bins[loudest] > -60 ? loudest * analyser.context.sampleRate / analyser.fftSize : 0;
}"""


@pytest.fixture
def pool() -> FakePool:
    return FakePool()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--use-fake-ui-for-media-stream",
                "--use-fake-device-for-media-stream",
                "--autoplay-policy=no-user-gesture-required",
            ],
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Browser, pool: FakePool) -> AsyncIterator[Page]:
    async def blank(_request: web.Request) -> web.Response:
        return web.Response(text="<html></html>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", blank)
    setup_calls(app, pool, FakeSettings(), ClientSecrets(pool))
    async with TestServer(app) as server, await browser.new_context() as alone:
        page = await alone.new_page()
        await page.goto(str(server.make_url("/")))
        yield page


@pytest.mark.parametrize(
    "kind", ["microphone", "microphone and video", "listen", "events", "microphone PCMU"]
)
async def test_a_browser_is_answered_heard_and_spoken_to(page: Page, pool: FakePool, kind: str) -> None:
    await page.evaluate(CALL, kind)
    await page.wait_for_function("() => events.length > 1", timeout=10_000)
    assert await page.evaluate("events") == ["session.created", "error"]
    if "microphone" in kind:
        await until(lambda: len(pool.units[0].last.heard) > 20)
    if kind != "events":
        pool.units[0].output_queue.say(5)
        await page.wait_for_function(f"() => Math.abs(({PITCH})() - 300) < 15", timeout=10_000)
    await page.evaluate("pc.close()")
    assert await until(lambda: pool.free == 1) < 1


async def test_a_page_that_is_reloaded_frees_its_unit_at_once(page: Page, pool: FakePool) -> None:
    await page.evaluate(CALL, "microphone")
    await page.wait_for_function("() => events.length > 1", timeout=10_000)
    await page.reload()
    assert await until(lambda: pool.free == 1) < 1


async def test_a_tab_that_is_closed_frees_its_unit_within_six_seconds(page: Page, pool: FakePool) -> None:
    await page.evaluate(CALL, "microphone")
    await page.wait_for_function("() => events.length > 1", timeout=10_000)
    await page.close()
    assert await until(lambda: pool.free == 1, 8) < 6


async def test_a_microphone_that_is_taken_away_leaves_the_call_alive(page: Page, pool: FakePool) -> None:
    await page.evaluate(CALL, "microphone")
    await page.wait_for_function("() => events.length > 1", timeout=10_000)
    await page.evaluate("pc.getSenders()[0].replaceTrack(null)")
    await asyncio.sleep(7)
    assert pool.free == 0
