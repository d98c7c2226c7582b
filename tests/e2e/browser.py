"""A headless Chromium whose microphone plays a file, on the real page, and an ear on what it hears."""

from __future__ import annotations

import base64
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import Page, async_playwright

from tests.speech import without_pauses
from units.messages import EAR_RATE, Float32, Int16
from units.resample import EarResampler

CHROMIUM = "/usr/bin/chromium"

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
)

_EAR = """
(() => {
  const Native = window.RTCPeerConnection;
  window.heard = {rate: 48000, parts: []};
  window.RTCPeerConnection = class extends Native {
    constructor(...args) {
      super(...args);
      this.addEventListener('track', ({track}) => {
        const context = new AudioContext({sampleRate: 48000});
        const source = context.createMediaStreamSource(new MediaStream([track]));
        const tap = context.createScriptProcessor(4096, 1, 1);
        tap.onaudioprocess = (event) => {
          const samples = event.inputBuffer.getChannelData(0);
          const out = new Int16Array(samples.length);
          for (let i = 0; i < samples.length; i++) out[i] = Math.max(-1, Math.min(1, samples[i])) * 32767;
          window.heard.parts.push(out);
        };
        source.connect(tap);
        tap.connect(context.destination);
      });
    }
  };
  window.takeHeard = () => {
    const parts = window.heard.parts.splice(0);
    let binary = '';
    for (const part of parts) {
      const bytes = new Uint8Array(part.buffer);
      for (let i = 0; i < bytes.length; i += 8192)
        binary += String.fromCharCode(...bytes.subarray(i, i + 8192));
    }
    return btoa(binary);
  };
})();
"""


def microphone_file(path: Path, *speech: Float32, lead_s: float = 1.5, gap_s: float = 0.0) -> Path:
    """A WAV file for the fake microphone: silence, then each piece of ``speech`` (float32 at 16 kHz)."""
    parts = [np.zeros(int(lead_s * EAR_RATE), np.float32)]
    for piece in speech:
        parts += [piece, np.zeros(int(gap_s * EAR_RATE), np.float32)]
    sound = (np.clip(np.concatenate(parts), -1, 1) * 32767).astype(np.int16)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(EAR_RATE)
        file.writeframes(sound.tobytes())
    return path


@asynccontextmanager
async def chromium(
    url: str,
    microphone: Path | None = None,
    *,
    deny_microphone: bool = False,
    executable: str | Path = CHROMIUM,
    flags: Sequence[str] = (),
    before: str = "",
    **context: Any,
) -> AsyncIterator[Page]:
    """The page at ``url``, not started yet. ``microphone`` is played once, from when it is opened.

    ``before`` is a script that the page runs before its own.
    """
    flags = [
        *FLAGS,
        *flags,
        "--deny-permission-prompts" if deny_microphone else "--use-fake-ui-for-media-stream",
    ]
    if microphone is not None:
        flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=flags)
        try:
            page = await (await browser.new_context(**context)).new_page()
            await page.context.add_init_script(_EAR)
            if before:
                await page.context.add_init_script(before)
            await page.goto(url)
            yield page
        finally:
            await browser.close()


async def events(page: Page, type: str) -> list[dict[str, Any]]:
    """Server events of this type that the page has received, oldest first."""
    found: list[dict[str, Any]] = await page.evaluate(
        "type => window.duologue.events.map(e => e.event ?? e).filter(e => e.type === type)", type
    )
    return found


async def types(page: Page) -> list[str]:
    """Types of all events that went either way, oldest first."""
    found: list[str] = await page.evaluate("() => window.duologue.events.map(e => (e.event ?? e).type)")
    return found


async def wait_for_event(page: Page, type: str, count: int = 1, timeout: float = 30.0) -> dict[str, Any]:
    """The ``count``-th server event of this type."""
    await page.wait_for_function(
        "([type, count]) => window.duologue.events.filter(e => (e.event ?? e).type === type).length >= count",
        arg=[type, count],
        timeout=timeout * 1000,
    )
    return (await events(page, type))[count - 1]


async def heard(page: Page) -> Int16:
    """What came out of the page's loudspeaker since the last call: int16 mono at 48 kHz."""
    raw = await page.evaluate("() => window.takeHeard()")
    return np.frombuffer(base64.b64decode(raw), np.int16)


def for_ears(samples: Int16, rate: int = 48_000) -> Float32:
    """``samples`` as a recogniser takes them: float32 mono at 16 kHz, without long silences.

    Whisper leaves out the first words of an answer that stand alone after many seconds of silence.
    """
    return without_pauses(EarResampler(rate).convert(samples))
