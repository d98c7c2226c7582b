"""The main job, on real models: a clip of real speech goes into the browser's microphone, the page shows
what was said and answers aloud, and what the browser heard says what the page shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.needed import needed
from server.settings import Settings
from tests.e2e.browser import chromium, events, for_ears, heard, microphone_file, types, wait_for_event
from tests.e2e.serving import SCRIPTED, Served, serving
from tests.speech import CLIPS, load
from tests.wer import normalise, word_error_rate, word_errors
from units.engines.base import EngineSettings
from units.engines.faster_whisper import FasterWhisper
from units.messages import Float32

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(model: Callable[[str], Path]) -> Iterator[Served]:
    for name in needed(Settings()):
        model(name)
    with serving() as served:
        yield served


@dataclass
class Exchange:
    """One turn as the browser saw and heard it."""

    shown: str
    """The caller's words on the page."""
    answer: str
    """The answer's text on the page."""
    sound: Float32
    """What came out of the loudspeaker, float32 at 16 kHz."""
    types: list[str]


async def converse(url: str, clip: Path, folder: Path) -> Exchange:
    """Say ``clip`` to the page at ``url`` and listen to the whole answer."""
    microphone = microphone_file(folder / clip.name, load(clip))
    async with chromium(url, microphone) as page:
        await page.click("#start")
        transcript = await wait_for_event(
            page, "conversation.item.input_audio_transcription.completed", timeout=60
        )
        await wait_for_event(page, "output_audio_buffer.stopped", timeout=90)
        await page.wait_for_timeout(500)  # what is still on its way through the browser
        (done,) = await events(page, "response.done")
        assert done["response"]["status"] == "completed"
        answer: str = done["response"]["output"][0]["content"][0]["transcript"]
        assert transcript["transcript"] in await page.inner_text("[data-role=user]")
        assert (
            answer.split() == (await page.inner_text("[data-role=assistant]")).split()[-len(answer.split()) :]
        )
        return Exchange(transcript["transcript"], answer, for_ears(await heard(page)), await types(page))


async def test_real_speech_is_understood_and_the_answer_is_understandable(
    server: Served, tmp_path: Path
) -> None:
    assert len(CLIPS) == 5, "install Debian's pocketsphinx-testdata"
    ears = FasterWhisper(EngineSettings("faster-whisper", language="en"))
    said, shown, answered, spoken = [], [], [], []
    for path, words in CLIPS:
        exchange = await converse(server.url, path, tmp_path)
        said += normalise(words)
        shown += normalise(exchange.shown)
        answered += normalise(exchange.answer)
        spoken += normalise(ears.transcribe(exchange.sound).text)
    assert word_errors(said, shown) / len(said) <= 0.05, (said, shown)
    assert word_errors(answered, spoken) / len(answered) <= 0.10, (answered, spoken)


async def test_two_calls_at_once_hear_their_own_answers_only(server: Served, tmp_path: Path) -> None:
    ears = FasterWhisper(EngineSettings("faster-whisper", language="en"))
    clips = CLIPS[0], CLIPS[2]
    both = await asyncio.gather(*(converse(server.url, path, tmp_path) for path, _ in clips))
    for (mine, others), exchange in zip(((clips[0], clips[1]), (clips[1], clips[0])), both, strict=True):
        assert word_error_rate(mine[1], exchange.shown) <= 0.25
        assert word_error_rate(others[1], exchange.shown) >= 0.75
    for exchange, other in (both, both[::-1]):
        spoken = ears.transcribe(exchange.sound).text
        assert word_error_rate(exchange.answer, spoken) <= 0.25
        assert word_error_rate(other.answer, spoken) >= 0.75


async def test_a_typed_question_is_answered_aloud_without_a_microphone(server: Served) -> None:
    ears = FasterWhisper(EngineSettings("faster-whisper", language="en"))
    async with chromium(server.url, deny_microphone=True) as page:
        await page.fill("#message", "Please say good morning.")
        await page.press("#message", "Enter")
        await wait_for_event(page, "output_audio_buffer.stopped", timeout=60)
        await page.wait_for_timeout(500)
        (done,) = await events(page, "response.done")
        answer = done["response"]["output"][0]["content"][0]["transcript"]
        assert word_error_rate(answer, ears.transcribe(for_ears(await heard(page))).text) <= 0.25


async def test_speaking_stops_the_answer_and_what_was_not_heard_is_struck_through(tmp_path: Path) -> None:
    microphone = microphone_file(tmp_path / "late.wav", load(CLIPS[0][0]), lead_s=5.0)
    with serving(*SCRIPTED) as served:
        async with chromium(served.url, microphone) as page:
            await page.click("#start")
            await wait_for_event(page, "session.updated")
            await page.fill("#message", "[[long]]")
            await page.press("#message", "Enter")
            truncated = await wait_for_event(page, "conversation.item.truncated")
            await page.wait_for_function(
                "() => document.querySelector('main').dataset.phase !== 'assistantSpeaking'"
            )
            order = await types(page)
            item = await page.inner_text("[data-role=assistant]")
            struck = await page.locator(
                "[data-role=assistant] .unheard, [data-role=assistant] s"
            ).first.inner_text()
    assert 500 < truncated["audio_end_ms"] < 8_000
    assert order.index("output_audio_buffer.started") < order.index("input_audio_buffer.speech_started")
    assert order.index("input_audio_buffer.speech_started") < order.index("output_audio_buffer.cleared")
    assert struck.strip().endswith("come to the end.")
    assert item.strip().endswith(struck.strip())
