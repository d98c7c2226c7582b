"""Records on their way to a web server, as Standard Webhooks (https://www.standardwebhooks.com).

A POST carries what has come since the last one, up to fifty records, in order. It is repeated, with the same
``webhook-id``, until it is answered with 2xx or ten minutes have passed. Calls never wait for any of this.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections import deque
from contextlib import suppress
from secrets import token_hex

import aiohttp

from server.records.standard import secret_key, signed
from server.records.transcript import Record, timestamp

logger = logging.getLogger(__name__)

MOST_WAITING = 2_000
"""Records that wait for a receiver; what comes beyond is lost."""
BATCH = 50
ATTEMPT_S = 10.0
FIRST_DELAY, LAST_DELAY = 0.5, 60.0
"""Seconds before the second attempt, and at most between two."""
PATIENCE_S = 600.0
"""For one message; then it is lost, and the next has its turn."""
GONE = 410
"""The receiver wants no more, ever."""


class Webhook:
    """Sends records to one receiver, in order."""

    def __init__(self, url: str, secret: str) -> None:
        self.lost = 0
        """Records that the receiver never got."""
        self._url = url
        self._key = secret_key(secret)
        self._waiting: deque[Record] = deque()
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self._gone = self._complained = False

    def keep(self, record: Record) -> None:
        """Send it, some time."""
        if self._gone or len(self._waiting) >= MOST_WAITING:
            self._lose(1, "too much waits for it")
            return
        self._waiting.append(record)
        self._news.set()

    async def run(self) -> None:
        """Send what comes. After :meth:`close` it ends as soon as nothing waits."""
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_S)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http:
            while not (self._closing.is_set() and not self._waiting):
                await self._news.wait()
                self._news.clear()
                while self._waiting and not self._gone:
                    await self._deliver(http)

    async def close(self, running: asyncio.Task[None], seconds: float) -> None:
        """Send what waits, but take no longer than that."""
        self._closing.set()
        self._news.set()
        await asyncio.wait([running], timeout=seconds)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        if self._waiting:
            self._lose(len(self._waiting), "the server has stopped")

    async def _deliver(self, http: aiohttp.ClientSession) -> None:
        records = list(self._waiting)[:BATCH]
        data = {"type": "records", "timestamp": timestamp(time.time()), "data": {"records": records}}
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        message_id = f"msg_{token_hex(12)}"
        until, delay = time.monotonic() + PATIENCE_S, FIRST_DELAY
        while (why := await self._refused(http, message_id, body)) is not None:
            self._complain(why)
            if self._gone or time.monotonic() + delay > until:
                self._lose(len(records), why)
                break
            await self._pause(delay * random.uniform(0.8, 1.2))
            delay = min(2 * delay, LAST_DELAY)
        else:
            self._complained = False
        for _ in records:
            self._waiting.popleft()
        if self._gone:
            self._lose(len(self._waiting), "the receiver is gone for good")
            self._waiting.clear()

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not when there is hardly any time left."""
        if self._closing.is_set():
            await asyncio.sleep(FIRST_DELAY)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), seconds)

    async def _refused(self, http: aiohttp.ClientSession, message_id: str, body: bytes) -> str | None:
        """Why one attempt was in vain; None if it was not."""
        headers = signed(self._key, message_id, int(time.time()), body)
        try:
            async with http.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                self._gone = answer.status == GONE
                return None if 200 <= answer.status < 300 else f"it answered {answer.status}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return str(error) or type(error).__name__

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("The webhook does not take records, they wait: %s.", why)

    def _lose(self, records: int, why: str) -> None:
        if not self.lost:
            logger.error("Records were not delivered to the webhook, the first of them now: %s.", why)
        self.lost += records
