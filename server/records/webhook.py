"""Records on their way to a web server, as Standard Webhooks (https://www.standardwebhooks.com).

A POST carries what has come since the last one, up to fifty records or about 1 MB, in order. It is repeated,
with the same ``webhook-id``, until it is answered with 2xx or ten minutes have passed. Calls never wait.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from contextlib import suppress
from io import BytesIO
from secrets import token_hex
from urllib.parse import urlsplit

import aiohttp

from server.logs import timestamp
from server.records.standard import secret_key, signed
from server.records.transcript import Record, encoded

logger = logging.getLogger(__name__)

MOST_WAITING = 2_000
MOST_BYTES = 32 << 20
"""Records that wait for a receiver, and their size; what comes beyond is lost."""
BATCH = 50
BATCH_BYTES = 1 << 20
"""Of a POST, unless its only record is larger."""
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
        parts = urlsplit(url)
        self._name = f"{parts.scheme}://{parts.netloc}"  # the rest may be a secret
        self._key = secret_key(secret)
        self._waiting: deque[bytes] = deque()
        self._bytes = 0  # that wait
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self._gone = self._complained = False

    def keep(self, record: Record) -> None:
        """Send it, some time."""
        data = encoded(record)
        if self._gone or len(self._waiting) >= MOST_WAITING or self._bytes + len(data) > MOST_BYTES:
            self._lose(1, "too much waits for it")
            return
        self._waiting.append(data)
        self._bytes += len(data)
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
        await asyncio.gather(running, return_exceptions=True)
        if self._waiting:
            self._lose(len(self._waiting), "the server has stopped")

    async def _deliver(self, http: aiohttp.ClientSession) -> None:
        records = self._batch()
        head = f'{{"type":"records","timestamp":"{timestamp(time.time())}","data":{{"records":['
        body = b"".join([head.encode(), b",".join(records), b"]}}"])
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
        for record in records:
            self._waiting.popleft()
            self._bytes -= len(record)
        if self._gone:
            self._lose(len(self._waiting), "the receiver is gone for good")
            self._waiting.clear()
            self._bytes = 0

    def _batch(self) -> list[bytes]:
        """The first record that waits, and those after it that fit into the same message."""
        batch: list[bytes] = []
        room = BATCH_BYTES
        for record in self._waiting:
            room -= len(record)
            if batch and (room < 0 or len(batch) == BATCH):
                break
            batch.append(record)
        return batch

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not when there is hardly any time left."""
        if self._closing.is_set():
            await asyncio.sleep(FIRST_DELAY)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), seconds)

    async def _refused(self, http: aiohttp.ClientSession, message_id: str, body: bytes) -> str | None:
        """Why one attempt was in vain; None if it was not."""
        try:
            headers = await asyncio.to_thread(signed, self._key, message_id, int(time.time()), body)
            data = BytesIO(body)  # sent piece by piece
            async with http.post(self._url, data=data, headers=headers, allow_redirects=False) as answer:
                self._gone = answer.status == GONE
                return None if 200 <= answer.status < 300 else f"it answered {answer.status}"
        except Exception as error:  # whatever it is, it is no receipt
            return _reason(error)

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("%s does not take the webhook's records, they wait: %s.", self._name, why)

    def _lose(self, records: int, why: str) -> None:
        if not self.lost:
            lost = "Records were not delivered to the webhook at %s, the first of them now: %s."
            logger.error(lost, self._name, why)
        self.lost += records


def _reason(error: Exception) -> str:
    """What went wrong, without the address: many exceptions quote all of it."""
    detail = getattr(error, "strerror", None)
    return f"{type(error).__name__}, {detail}" if detail else type(error).__name__
