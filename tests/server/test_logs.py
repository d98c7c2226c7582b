"""What a line of the log looks like, and how it knows which call it is about."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from server.call_log import CallLog
from server.logs import About, JsonLines, Malformed, TextLines, log_uncaught
from server.watch import Begun
from tests.units.caller import Caller, WatchedUnit, loud, quiet, scripted
from tests.units.odd_engines import FailingLLM
from units.engines.base import EngineError, Transcription
from units.messages import Float32
from units.scope import CancelScope, entered

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

logger = logging.getLogger("server.test")


class Lines(logging.Handler):
    """Everything that is logged, as lines of one format."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.addFilter(About())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def parsed(self, message: str = "") -> list[dict[str, Any]]:
        """Lines of JSON that have ``message`` in their message."""
        return [line for line in map(json.loads, self.lines) if message in line["message"]]


@pytest.fixture(params=[JsonLines])
def lines(request: pytest.FixtureRequest) -> Iterator[Lines]:
    lines, root = Lines(request.param()), logging.getLogger()
    levels = {log: log.level for log in map(logging.getLogger, ("units", "server"))}
    root.addHandler(lines)
    for log in levels:
        log.setLevel(logging.INFO)
    yield lines
    root.removeHandler(lines)
    for log, level in levels.items():
        log.setLevel(level)


as_text = pytest.mark.parametrize("lines", [TextLines], indirect=True)


def test_a_line_of_json_has_the_time_in_utc_and_no_ids_where_none_are_known(lines: Lines) -> None:
    logger.info("hello %s", "wörld")
    (line,) = lines.parsed()
    assert TIME.fullmatch(line.pop("time"))
    assert line == {"level": "info", "logger": "server.test", "message": "hello wörld"}


def test_a_line_says_what_it_is_about(lines: Lines) -> None:
    call = CancelScope("rtc_1", ids={"call": "rtc_1"})
    with entered(CancelScope("resp_1", call, {"turn": "resp_1"})):
        logger.info("inside")
        logger.info("of another turn", extra={"about": {"turn": "item_2"}})
    logger.info("outside")
    assert [(line.get("call"), line.get("turn")) for line in lines.parsed()] == [
        ("rtc_1", "resp_1"),
        ("rtc_1", "item_2"),
        (None, None),
    ]


async def test_tasks_and_callbacks_that_a_call_began_are_about_it(lines: Lines) -> None:
    async def later() -> None:
        logger.info("in a task")

    with entered(CancelScope("rtc_1", ids={"call": "rtc_1"})):
        task = asyncio.create_task(later())
        asyncio.get_running_loop().call_soon(logger.info, "in a callback")
        thread = asyncio.to_thread(logger.info, "on a thread")
        await thread
    await task
    assert {line["call"] for line in lines.parsed("in a")} == {"rtc_1"}
    assert lines.parsed("on a thread")[0]["call"] == "rtc_1"


def test_a_traceback_is_part_of_its_line(lines: Lines) -> None:
    try:
        raise ValueError("one\ntwo")
    except ValueError:
        logger.exception("it failed")
    (line,) = lines.parsed()
    assert len(lines.lines[0].splitlines()) == 1
    assert line["level"] == "error"
    assert line["exception"].endswith("ValueError: one\ntwo")


@as_text
def test_text_shows_the_call(lines: Lines) -> None:
    logger.info("outside")
    with entered(CancelScope("rtc_1", ids={"call": "rtc_1"})):
        logger.warning("inside")
    without, within = (TIME.sub("T", line) for line in lines.lines)
    assert without == "T INFO    server.test: outside"
    assert within == "T WARNING server.test [rtc_1]: inside"


@as_text
def test_text_from_outside_cannot_look_like_a_line_of_its_own(lines: Lines) -> None:
    forged = "x\n2026-01-01T00:00:00.000Z INFO server: forged\r\x1b[2K\u2028\ud800"
    logger.info("hung up: %s", forged)
    try:
        raise ValueError(forged)
    except ValueError:
        logger.exception("it failed")
    first, *rest = "\n".join(lines.lines).split("\n")
    assert first.endswith(r"hung up: x\n2026-01-01T00:00:00.000Z INFO server: forged\r\x1b[2K\u2028\ud800")
    assert not re.search(r"[\r\x1b\u2028\ud800]", "".join(rest))
    heads = [line for line in rest if not line.startswith("    ")]
    assert [TIME.sub("T", head) for head in heads] == ["T ERROR   server.test: it failed"]


async def test_an_error_that_nobody_caught_does_not_show_what_a_callback_was_given(lines: Lines) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_uncaught)

    def fail(_said: str) -> None:
        raise ZeroDivisionError

    loop.call_soon(fail, "a secret")
    await asyncio.sleep(0)
    (line,) = lines.parsed("an error in a callback")
    assert "ZeroDivisionError" in line["exception"]
    assert "a secret" not in lines.lines[0]


async def test_a_request_that_is_no_http_is_a_line_that_quotes_nothing_and_a_flood_of_them_is_no_more(
    lines: Lines,
) -> None:
    bad = Malformed(every=3600)
    of_aiohttp = logging.getLogger("aiohttp.server")
    of_aiohttp.addFilter(bad)
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-secret\x01\r\n\r\n"
    async with TestServer(web.Application()) as server:
        for _ in range(5):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(request)
            assert (await reader.readline()).split()[1] == b"400"
            writer.close()
    of_aiohttp.removeFilter(bad)
    (line,) = [json.loads(line) for line in lines.lines]
    assert (line["level"], line["message"]) == ("info", "requests that are no HTTP: 1, now BadHttpMessage")
    assert "exception" not in line


def test_any_other_error_of_the_http_server_is_told_of() -> None:
    error = ZeroDivisionError()
    exc_info = (type(error), error, None)
    record = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "it failed", (), exc_info)
    assert Malformed().filter(record)


async def watched(unit: WatchedUnit, call: str = "rtc_1") -> Caller:
    """A caller of ``unit``, as a door lets it in."""
    with entered(CancelScope(call, ids={"call": call})):
        return Caller(unit, observers=[CallLog(Begun(call, "webrtc", unit.index))])


async def test_a_call_is_two_lines_with_what_came_of_it(new_unit: Any, lines: Lines) -> None:
    caller = await watched(new_unit())
    caller.write("[[long]]")
    await caller.got("response.done")
    caller.listen(200)
    caller.say(loud(300))
    await caller.got("output_audio_buffer.cleared")
    await caller.hang_up()
    begins, ends = lines.parsed("call begins") + lines.parsed("call ends")
    assert (begins["call"], begins["door"]) == ("rtc_1", "webrtc")
    session = caller.of("session.created")[0]["session"]["id"]
    assert (ends["call"], ends["session"], ends["unit"]) == ("rtc_1", session, 0)
    assert (ends["reason"], ends["turns"], ends["interruptions"]) == ("hung up", 1, 1)
    assert 0 < ends["duration_s"] < 30


async def test_the_client_of_a_websocket_says_what_was_interrupted(lines: Lines) -> None:
    call = CallLog(Begun("ws_1", "websocket", 0))
    item = {"type": "response.output_item.added", "response_id": "resp_1", "item": {"id": "item_1"}}
    truncated = {"type": "conversation.item.truncated", "item_id": "item_1"}
    cut = {"id": "resp_1", "status_details": {"type": "cancelled", "reason": "turn_detected"}}
    for event in ({"type": "response.created"}, item, truncated, {"type": "response.done", "response": cut}):
        call.sent(event)
    call.sent({"type": "response.done", "response": {"id": "resp_2", "status_details": None}})
    call.closed("the client left")
    (line,) = lines.parsed("call ends")
    assert (line["turns"], line["interruptions"]) == (1, 1)


class _FailingSTT:
    live = False

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        logging.getLogger("units.engines.test").warning("about to fail")
        raise EngineError("it hears nothing")


async def test_an_engine_that_fails_on_its_thread_is_told_of_with_call_session_and_turn(
    new_unit: Any, lines: Lines
) -> None:
    caller = await watched(new_unit(scripted(llm=FailingLLM(), stt=_FailingSTT())))
    caller.write("fail")
    response = (await caller.got("response.done"))["response"]
    caller.say(loud(600), quiet(1500))
    await caller.got("response.done", 2)
    await caller.hang_up()
    session = caller.of("session.created")[0]["session"]["id"]
    (failed,) = lines.parsed("stage llm failed")
    assert (failed["call"], failed["session"], failed["unit"]) == ("rtc_1", session, 0)
    assert failed["turn"] == response["id"]
    heard = lines.parsed("about to fail")[0]
    assert (heard["call"], heard["session"], heard.get("turn")) == ("rtc_1", session, None)


async def test_lines_on_the_loop_are_about_the_turn_and_never_what_was_said(
    new_unit: Any, lines: Lines
) -> None:
    logging.getLogger("units").setLevel(logging.DEBUG)
    caller = await watched(new_unit())
    caller.say(loud(600), quiet(1500))
    response = (await caller.got("response.done"))["response"]
    item = caller.of("input_audio_buffer.committed")[0]["item_id"]
    await caller.hang_up()
    assert {line["turn"] for line in lines.parsed("turn 1:")} == {item}
    assert {line["turn"] for line in lines.parsed("response ")} == {response["id"]}
    assert {line["call"] for line in lines.parsed("")} == {"rtc_1"}
    said = caller.of("response.output_audio_transcript.done")[0]["transcript"]
    assert said not in "\n".join(lines.lines)


async def test_our_own_fault_is_told_of_with_the_turn_in_which_it_showed(
    new_unit: Any, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await watched(new_unit())

    def fail(*_: object) -> list[Any]:
        raise ZeroDivisionError

    monkeypatch.setattr(caller.session.service, "receive", fail)
    caller.write("hello")
    response = caller.of("response.created")[0]["response"]
    await caller.unit.eventually(lambda: caller.closed)
    (failed,) = [line for line in lines.parsed("failed") if line["level"] == "error"]
    assert (failed["call"], failed["turn"]) == ("rtc_1", response["id"])
    assert "ZeroDivisionError" in failed["exception"]
    (ends,) = lines.parsed("call ends")
    assert ends["reason"] == "internal error"


async def test_two_calls_at_once_are_told_apart(new_unit: Any, lines: Lines) -> None:
    logging.getLogger("units").setLevel(logging.DEBUG)
    one, other = await watched(new_unit(), "rtc_1"), await watched(new_unit(), "rtc_2")
    one.write("hello")
    other.write("hello")
    done = [(await caller.got("response.done"))["response"]["id"] for caller in (one, other)]
    await one.hang_up()
    await other.hang_up()
    calls = {line["turn"]: line["call"] for line in lines.parsed("LIVE -> DONE")}
    assert calls == dict(zip(done, ["rtc_1", "rtc_2"], strict=True))


def test_warnings_and_errors_that_nobody_caught_are_lines_too() -> None:
    program = (
        "import threading, warnings\n"
        "from server.logs import configure_logging\n"
        "configure_logging('info', 'json')\n"
        "warnings.warn('old\\nnews')\n"
        "thread = threading.Thread(target=lambda: 1 / 0, name='worker')\n"
        "thread.start(); thread.join()\n"
        "raise ValueError('the end')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    warning, thread, end = map(json.loads, run.stderr.splitlines())
    assert run.returncode == 1
    assert (warning["level"], warning["logger"]) == ("warning", "py.warnings")
    assert "old\nnews" in warning["message"]
    assert (thread["level"], thread["message"]) == ("critical", "thread worker died")
    assert thread["exception"].endswith("ZeroDivisionError: division by zero")
    assert end["exception"].endswith("ValueError: the end")
