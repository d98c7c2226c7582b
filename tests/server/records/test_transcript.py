"""Records of what was said, and the file that they are in."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.records import writer as module
from server.records.setup import file_name
from server.records.transcript import JsonLines, Transcript
from server.records.writer import Writer
from server.watch import Begun
from tests.server.records.served import open_files
from units.messages import Said

BEGUN = Begun("rtc_1", "webrtc", 0)
CREATED = {"type": "session.created", "session": {"id": "sess_1", "model": "m"}}
SAID = Said("item_1", "user", "speech", "Grüß Gott\nallerseits")


class Clock:
    now = 1_796_000_000.5

    def __call__(self) -> float:
        return self.now


def kept(*said: Said, began: bool = True) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    clock = Clock()
    transcript = Transcript(BEGUN, [records.append], clock)
    if began:
        transcript.sent(CREATED)
        transcript.sent({"type": "response.created"})
        transcript.heard(np.zeros(320, np.float32))
    for each in said:
        clock.now += 1
        transcript.said(each)
    clock.now += 1.25
    transcript.closed("hung up")
    return records


def test_a_call_has_a_first_and_a_last_record() -> None:
    where = {"call_id": "rtc_1", "session_id": "sess_1"}
    assert kept() == [
        {"time": "2026-11-30T00:53:20.500Z", "type": "call.began", **where, "door": "webrtc", "model": "m"},
        {
            "time": "2026-11-30T00:53:21.750Z",
            "type": "call.ended",
            **where,
            "reason": "hung up",
            "seconds": 1.25,
        },
    ]


def test_a_record_has_what_there_is_to_say() -> None:
    cut = Said("item_2", "assistant", "speech", "Yes", response_id="resp_1", interrupted=True)
    lost = Said("item_3", "user", "speech", "", error="It broke.")
    _, first, second, third, _ = kept(SAID, cut, lost)
    always = ("time", "call_id", "session_id")
    assert [{name: each[name] for name in each if name not in always} for each in (first, second, third)] == [
        {"type": "speech", "item_id": "item_1", "role": "user", "text": "Grüß Gott\nallerseits"},
        {
            "type": "speech",
            "item_id": "item_2",
            "role": "assistant",
            "text": "Yes",
            "response_id": "resp_1",
            "interrupted": True,
        },
        {"type": "speech", "item_id": "item_3", "role": "user", "text": "", "error": "It broke."},
    ]


def test_a_session_that_never_began_has_no_record() -> None:
    assert kept(began=False) == []


def test_a_session_in_which_nothing_happened_has_no_record() -> None:
    records: list[dict[str, Any]] = []
    transcript = Transcript(BEGUN, [records.append], Clock())
    transcript.sent(CREATED)
    transcript.closed("a wrong offer")
    assert records == []


def test_each_record_is_a_line_at_once(tmp_path: Path) -> None:
    path, writer = tmp_path / "call.jsonl", Writer()
    writer.start()
    lines = JsonLines(path, writer)
    for record in kept(SAID):
        lines.keep(record)
    writer.stop(5)
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == kept(SAID)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_words_that_are_no_unicode_are_kept_as_far_as_possible(tmp_path: Path) -> None:
    path, writer = tmp_path / "call.jsonl", Writer()
    writer.start()
    JsonLines(path, writer).keep({"type": "text", "text": "a\ud800b"})
    writer.stop(5)
    assert json.loads(path.read_text("utf-8"))["text"] == "a?b"


def test_a_disk_that_fails_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer()
    writer.start()
    lines = JsonLines(tmp_path / "gone" / "call.jsonl", writer)
    for record in kept(SAID):
        lines.keep(record)
    writer.stop(5)
    assert writer.failures == len(caplog.records) == 1


def test_a_disk_that_is_too_slow_gets_what_waits_and_holds_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    hangs, writer = threading.Event(), Writer()
    waited: list[bool] = []
    writer.start()
    lines = [JsonLines(tmp_path / f"{n}.jsonl", writer) for n in range(3)]
    for each in lines:
        each.keep({"type": "call.began"})
    writer.do(lambda: waited.append(hangs.wait(10)))
    while writer.failures == 0:
        lines[0].keep({"type": "text", "text": 100 * "a"})
    for each in lines:
        each.keep({"type": "text", "text": 100 * "b"})
        each.keep({"type": "call.ended"})
    hangs.set()
    writer.stop(5)
    assert writer.failures == len(caplog.records) == 3
    assert open_files(tmp_path) == []
    written = [len((tmp_path / f"{n}.jsonl").read_text().splitlines()) for n in range(3)]
    assert written[0] >= 7
    assert written[1:] == [1, 1]


def test_a_file_that_is_deleted_during_the_call_is_counted(tmp_path: Path) -> None:
    path, writer = tmp_path / "call.jsonl", Writer()
    lines = JsonLines(path, writer)
    first, *rest = kept(SAID)
    lines.keep(first)
    writer.do(path.unlink)
    for record in rest:
        lines.keep(record)
    writer.start()
    writer.stop(5)
    assert writer.failures == 1


def test_files_are_named_by_time_and_call() -> None:
    assert file_name(BEGUN, 1_796_000_000.5, "ogg") == "20261130T005320Z-rtc_1.ogg"
