"""The page of a server that needs a key: a real Chromium, a real server, scripted engines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from playwright.async_api import Page, expect

from server.keys import Key, new_key, sha256, write_keys
from tests.e2e.browser import chromium, microphone_file, wait_for_event
from tests.e2e.serving import SCRIPTED, serving

pytestmark = pytest.mark.e2e


async def asks_for_a_key(page: Page) -> Any:
    await expect(page.get_by_test_id("problem")).to_have_attribute("data-code", "auth")
    return page.get_by_label("Key", exact=True)


async def listens(page: Page) -> None:
    await expect(page.locator("main")).to_have_attribute("data-phase", "listening")


async def free(url: str, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    async with ClientSession(url, headers=headers) as http, http.get("/v1/pool") as response:
        return sum(unit["state"] == "idle" for unit in (await response.json())["units"])


async def test_who_has_no_key_yet_is_told_that_calls_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    write_keys(file, [Key("somebody", sha256(new_key()))])
    with serving(*SCRIPTED, "--keys-file", str(file), "--record-calls", str(tmp_path / "calls")) as served:
        async with chromium(served.url) as page:
            notice = page.get_by_test_id("notice")
            await expect(notice).to_have_text("Calls on this server are recorded.")
            await page.get_by_test_id("start").click()
            await asks_for_a_key(page)
            await expect(notice).to_be_visible()


async def test_a_person_enters_the_key_once_and_it_is_nowhere_else(tmp_path: Path) -> None:
    key, file = new_key(), tmp_path / "keys.json"
    write_keys(file, [Key("somebody", sha256(key))])
    flags = [*SCRIPTED, "--keys-file", str(file), "--log-level", "debug", "--num-pipelines", "1"]
    microphone = microphone_file(tmp_path / "silence.wav")  # Chromium's own beeps, which is heard as speech
    with serving(*flags) as served:
        async with chromium(served.url, microphone) as page:
            said: list[str] = []
            page.on("console", lambda line: said.append(line.text))
            await page.get_by_test_id("start").click()
            field = await asks_for_a_key(page)
            await field.fill("dk_wrong")
            await field.press("Enter")
            await expect(page.get_by_test_id("problem")).to_have_attribute("data-code", "key-wrong")
            await expect(page.get_by_role("heading", name="That key is not valid")).to_be_focused()
            await expect(page.locator("#say-alert")).to_contain_text("That key is not valid")
            await expect(field).to_have_value("")
            await field.fill(f" {key} ")
            await page.get_by_role("button", name="Use this key").click()
            await listens(page)
            await page.get_by_test_id("message").fill("Hello")
            await page.get_by_test_id("send").click()
            await wait_for_event(page, "response.done")
            known = await page.evaluate("JSON.stringify(window.duologue.events) + document.body.outerHTML")
            await page.reload()
            async with asyncio.timeout(4):  # less than it takes to notice that nobody is there
                while await free(served.url, key) == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            await page.get_by_test_id("start").click()
            await listens(page)
            await page.get_by_test_id("end").click()
    assert key not in known
    assert not [line for line in said if key in line or "Content Security Policy" in line]
    assert any("session.created" in line for line in served.lines), "the log is not at debug"
    assert not [line for line in served.lines if key in line or sha256(key) in line]
