"""A server with one unit, and pages that want it again and again, or at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.async_api import Page, expect

from tests.e2e.browser import chromium, microphone_file
from tests.e2e.serving import SCRIPTED, Served, serving
from units.messages import EAR_RATE

pytestmark = pytest.mark.e2e

RELOADS = 20
SOON_S = 5.0
"""A call is there, also if it was refused once and had to be tried again."""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("--num-pipelines", "1", *SCRIPTED) as served:
        yield served


@pytest.fixture
def silence(tmp_path: Path) -> Path:
    return microphone_file(tmp_path / "silence.wav", np.zeros(EAR_RATE, np.float32))


async def start(page: Page) -> None:
    await page.get_by_test_id("start").click()


async def listens(page: Page) -> None:
    await expect(page.locator("main")).to_have_attribute("data-phase", "listening", timeout=SOON_S * 1000)


async def test_a_page_that_is_reloaded_again_and_again_soon_has_its_call_each_time(
    served: Served, silence: Path
) -> None:
    async with chromium(served.url, silence) as page:
        for _ in range(RELOADS):
            await start(page)
            await listens(page)
            await page.reload()
        await start(page)
        await listens(page)
        await page.get_by_test_id("end").click()


async def test_a_second_tab_says_that_all_is_taken_and_has_the_call_once_the_first_has_ended(
    served: Served, silence: Path
) -> None:
    async with chromium(served.url, silence) as page:
        other = await page.context.new_page()
        await other.goto(served.url)
        await start(page)
        await listens(page)
        await start(other)
        await expect(other.get_by_test_id("problem")).to_have_attribute("data-code", "busy")
        await page.get_by_test_id("end").click()
        await listens(other)
        await expect(other.get_by_test_id("problem")).to_be_hidden()
