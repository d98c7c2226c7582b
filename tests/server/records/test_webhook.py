"""Records on their way to a receiver that may be slow, wrong or gone."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from server.records import webhook as module
from server.records.setup import RECORDS
from server.records.standard import check_receiver, secret_key, signed
from server.records.webhook import Webhook
from server.settings import Settings
from server.settings_sources import SettingsError, load_settings
from tests.server.records.served import Stalls, records, serving, typed, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WRITTEN = {"type": "realtime", "output_modalities": ["text"]}


def test_a_signature_is_that_of_the_standards_own_example() -> None:
    headers = signed(
        secret_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"


class Receiver:
    """Verifies what comes, and answers what it is told; 204 when it is told nothing."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.headers: list[tuple[str, str]] = []
        self.records: list[dict[str, Any]] = []
        self.hang = asyncio.Event()
        self.hang.set()
        self.news = asyncio.Event()

    async def post(self, request: web.Request) -> web.Response:
        body = await request.read()
        id, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        wanted = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
        assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(wanted).decode()}"
        assert abs(time.time() - int(at)) < 5
        assert request.content_type == "application/json"
        self.headers.append((id, at))
        await self.hang.wait()
        status = self.answers.pop(0) if self.answers else 204
        if status == 204:
            message = json.loads(body)
            assert message["type"] == "records"
            self.records += message["data"]["records"]
            self.news.set()
        location = {"Location": "/elsewhere"} if status == 302 else {}
        return web.Response(status=status, headers=location)

    async def got(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.records) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
async def server(receiver: Receiver) -> AsyncIterator[TestServer]:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/calls", receiver.post)
    async with TestServer(app) as server:
        yield server


class Sending:
    def __init__(self, url: str) -> None:
        self.webhook = Webhook(url, SECRET)
        self._running = asyncio.create_task(self.webhook.run())

    async def close(self, seconds: float = 3.0) -> None:
        await self.webhook.close(self._running, seconds)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)


async def test_records_are_sent_signed_and_in_order(server: TestServer, receiver: Receiver) -> None:
    sending = Sending(str(server.make_url("/calls")))
    records = [{"n": n} for n in range(120)]
    for record in records:
        sending.webhook.keep(record)
    await receiver.got(120)
    assert receiver.records == records
    assert len(receiver.headers) == 3
    await sending.close()
    assert sending.webhook.lost == 0


async def test_a_receiver_that_fails_twice_gets_the_same_message_again(
    server: TestServer, receiver: Receiver, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500, 302]
    sending = Sending(str(server.make_url("/calls")))
    with caplog.at_level(logging.WARNING):
        sending.webhook.keep({"n": 1})
        await receiver.got(1)
    assert receiver.records == [{"n": 1}]
    assert len(receiver.headers) == 3
    assert len({id for id, _ in receiver.headers}) == 1
    assert len(caplog.records) == 1
    await sending.close()


async def test_what_waits_is_delivered_when_the_server_stops(
    server: TestServer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answers = [503]
    sending = Sending(str(server.make_url("/calls")))
    monkeypatch.setattr(module, "FIRST_DELAY", 0.05)
    for n in range(3):
        sending.webhook.keep({"n": n})
    await sending.close()
    assert len(receiver.records) == 3
    assert sending.webhook.lost == 0


async def test_stopping_waits_for_nobody_for_long(
    server: TestServer, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.hang.clear()
    sending = Sending(str(server.make_url("/calls")))
    sending.webhook.keep({"n": 1})
    began = time.monotonic()
    await sending.close(0.2)
    assert time.monotonic() - began < 1
    assert sending.webhook.lost == 1
    assert len(caplog.records) == 1
    receiver.hang.set()


async def test_a_receiver_that_is_away_costs_a_bounded_amount_of_memory(
    quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    sending = Sending("http://127.0.0.1:9/calls")
    for n in range(module.MOST_WAITING + 500):
        sending.webhook.keep({"n": n})
    assert sending.webhook.lost == 500
    await sending.close(0.1)
    assert sending.webhook.lost == module.MOST_WAITING + 500
    assert len(caplog.records) == 2  # that records are lost, and that the receiver is away


async def test_large_records_are_bounded_by_their_size(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    sending = Sending("http://127.0.0.1:9/calls")
    for _ in range(8):
        sending.webhook.keep({"text": "\U0001f600" * 500})
    assert sending.webhook.lost == 4
    await sending.close(0.1)


async def test_a_message_has_at_most_a_megabyte_unless_one_record_is_larger(
    server: TestServer, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 1000)
    sending = Sending(str(server.make_url("/calls")))
    records = [{"text": "a" * size} for size in (400, 400, 400, 5000, 10)]
    for record in records:
        sending.webhook.keep(record)
    await receiver.got(5)
    assert receiver.records == records
    assert len(receiver.headers) == 4
    await sending.close()


async def test_large_records_hold_up_no_call(server: TestServer, receiver: Receiver) -> None:
    sending = Sending(str(server.make_url("/calls")))
    for _ in range(3):
        sending.webhook.keep({"text": "\U0001f600" * 200_000})
    stalls = Stalls()
    await receiver.got(3)
    assert stalls.near(0) / 2 < 0.5
    await sending.close()


async def test_whatever_fails_in_an_attempt_is_a_failed_attempt_and_not_the_end(
    quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    sending = Sending("https://hooks..example.org/secret?key=1234")
    sending.webhook.keep({"n": 1})
    await until(lambda: sending.webhook.lost == 1)
    sending.webhook.keep({"n": 2})
    await until(lambda: sending.webhook.lost == 2)
    await sending.close()
    assert "https://hooks..example.org does not take" in caplog.text
    assert "secret" not in caplog.text
    assert "1234" not in caplog.text


async def test_a_message_that_is_never_taken_makes_way_for_the_next(
    server: TestServer, receiver: Receiver, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    receiver.answers = [400]
    sending = Sending(str(server.make_url("/calls")))
    sending.webhook.keep({"n": 1})
    async with asyncio.timeout(5):
        while not sending.webhook.lost:  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0)
    sending.webhook.keep({"n": 2})
    await receiver.got(1)
    assert receiver.records == [{"n": 2}]
    await sending.close()


async def test_a_receiver_that_is_gone_for_good_is_sent_nothing_more(
    server: TestServer, receiver: Receiver, quick: None
) -> None:
    receiver.answers = [410]
    sending = Sending(str(server.make_url("/calls")))
    sending.webhook.keep({"n": 1})
    await sending.close()
    sending.webhook.keep({"n": 2})
    assert (len(receiver.headers), sending.webhook.lost) == (1, 2)


async def test_a_call_is_reported_also_when_the_receiver_fails_and_the_server_stops(
    server: TestServer, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [500, 500]
    url = str(server.make_url("/calls"))
    settings: dict[str, Any] = {"record_calls": None, "webhook": url, "webhook_secret": SECRET}
    async with serving(tmp_path, **settings) as http, http.ws_connect("/v1/realtime?model=m") as socket:
        await socket.send_json({"type": "session.update", "session": WRITTEN})
        await socket.send_json(typed("[[echo:Yes.]]"))
        await socket.send_json({"type": "response.create"})
        while (await socket.receive_json())["type"] != "response.done":
            pass
    assert receiver.records == records(tmp_path)
    assert http.app[RECORDS].failures == 0
    assert [(each["type"], each.get("text")) for each in receiver.records] == [
        ("call.began", None),
        ("text", "[[echo:Yes.]]"),
        ("text", "Yes."),
        ("call.ended", None),
    ]
    assert len({id for id, _ in receiver.headers[:3]}) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/calls",
        "https://10.0.0.7/calls",
        "http://localhost:9000/calls",
        "http://127.0.0.1/calls",
        "http://10.1.2.3:9000/",
        "http://[::1]:9000/",
        "http://192.168.1.5/calls",
        "http://172.31.0.1/calls",
        "http://[fd00::7]/calls",
        "https://192.0.2.1:8443/calls?key=1",
        "https://my_hooks.example.org./calls",
        "https://bücher.example/calls",
    ],
)
def test_receivers_that_are_near_or_encrypted_may_be_named(url: str) -> None:
    check_receiver(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/calls",
        "http://receiver.internal/calls",
        "http://203.0.114.7/calls",
        "http://0.0.0.0/",
        "ftp://localhost/",
        "https://",
        "localhost:9000",
        "https://user:password@example.org/",
        "http://[::1",
        "http://240.0.0.1/",
        "http://192.0.2.1/",
        "http://198.18.0.1/",
        "http://[2001:db8::1]/",
        "http://169.254.169.254/",
        "http://[fe80::1]/",
        "https://hooks..example.org/x",
        "https://example.org:99999/",
        "https://example.org:abc/",
        "https://exa mple.org/",
        "https://example.org/a\nb",
        "https://exa%20mple.org/",
        "https://-example.org/",
        "http://localhost:0/",
        "https://" + 64 * "a" + ".org/",
    ],
)
def test_others_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be an https address"):
        check_receiver(url)


def test_a_wrong_host_is_refused_when_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_WEBHOOK_SECRET", SECRET)
    with pytest.raises(SettingsError, match="valid host and port"):
        load_settings({"webhook": "https://hooks..example.org/x"})


@pytest.mark.parametrize(
    "secret", ["whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_%%%"]
)
def test_a_bad_secret_is_refused_without_being_shown(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_WEBHOOK_SECRET", secret)
    with pytest.raises(SettingsError, match=r"^DUOLOGUE_WEBHOOK_SECRET must be whsec_ and 24 to 64") as error:
        load_settings({})
    assert "c2hvcnQ" not in str(error.value)


def test_a_webhook_needs_a_secret() -> None:
    with pytest.raises(SettingsError, match="needs a secret, in DUOLOGUE_WEBHOOK_SECRET"):
        load_settings({"webhook": "https://example.org/calls"})
    assert Settings(webhook="https://example.org/calls", webhook_secret=SECRET).webhook
