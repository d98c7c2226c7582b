"""Who watches the calls of this server to keep records of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from server.records.recording import Recording
from server.records.transcript import JsonLines, Keep, Transcript
from server.records.webhook import Webhook
from server.records.writer import Writer, prepare
from server.settings import Settings
from server.watch import Begun, Watcher
from units.observe import Observer

WRITING_S = 5.0
"""For the disk to take the last records when the server stops."""
SENDING_S = 5.0
"""The same for the webhook's receiver."""


@dataclass(frozen=True, slots=True)
class Records:
    """What keeps the records of a server."""

    writer: Writer
    webhook: Webhook | None

    @property
    def failures(self) -> int:
        """Files that were given up, and records that no receiver got, since the start."""
        return self.writer.failures + (self.webhook.lost if self.webhook is not None else 0)


RECORDS = web.AppKey("records", Records)


def setup_records(app: web.Application, settings: Settings) -> list[Watcher]:
    """The watchers that keep what ``settings`` say, and write it while ``app`` runs.

    Goes before all that has calls, so that it ends after them. Raises SettingsError when there is a folder
    that cannot be written.
    """
    watchers: list[Watcher] = []
    writer, webhook = Writer(), _webhook(settings)
    if settings.record_calls is not None:
        prepare(settings.record_calls, "--record-calls")
        watchers.append(_recorder(settings.record_calls, writer))
    if settings.transcripts is not None:
        prepare(settings.transcripts, "--transcripts")
    if settings.transcripts is not None or webhook is not None:
        watchers.append(_scribe(settings.transcripts, writer, webhook))

    async def write(_app: web.Application) -> AsyncIterator[None]:
        writer.start()
        yield
        await asyncio.to_thread(writer.stop, WRITING_S)

    async def send(_app: web.Application) -> AsyncIterator[None]:
        assert webhook is not None
        running = asyncio.create_task(webhook.run(), name="webhook")
        yield
        await webhook.close(running, SENDING_S)

    app[RECORDS] = Records(writer, webhook)
    if settings.record_calls is not None or settings.transcripts is not None:
        app.cleanup_ctx.append(write)
    if webhook is not None:
        app.cleanup_ctx.append(send)
    return watchers


def _webhook(settings: Settings) -> Webhook | None:
    return Webhook(settings.webhook, settings.webhook_secret.get_secret_value()) if settings.webhook else None


def _recorder(folder: Path, writer: Writer) -> Watcher:
    def watch(begun: Begun) -> Observer:
        return Recording(folder / file_name(begun, time.time(), "ogg"), writer)

    return watch


def _scribe(folder: Path | None, writer: Writer, webhook: Webhook | None) -> Watcher:
    def watch(begun: Begun) -> Observer:
        keep: list[Keep] = [] if webhook is None else [webhook.keep]
        if folder is not None:
            keep.append(JsonLines(folder / file_name(begun, time.time(), "jsonl"), writer).keep)
        return Transcript(begun, keep)

    return watch


def file_name(begun: Begun, at: float, ending: str) -> str:
    """Such as ``20261130T101500Z-rtc_5f2a.ogg``."""
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}-{begun.id}.{ending}"
