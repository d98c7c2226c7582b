"""A recording, on a clock of its own: what is in the file, and what happens when there can be none."""

from __future__ import annotations

import logging
import os
import resource
import stat
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from server.records.recording import _MOST_BYTES, Recording
from server.records.transcript import JsonLines
from server.records.writer import Writer, prepare
from server.settings_sources import SettingsError
from tests.server.records.ogg import hertz, read, spans
from tests.server.records.served import open_files, serving
from units.messages import Float32, Int16


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Call:
    """A call of which a recording is made, with a writer that has no thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.writer = Writer()
        self.recording = Recording(path, self.writer, self.clock)
        self.open = True
        self.plays_itself = False

    def run(self, seconds: float, *, hears: float = 0.0, plays: float = 0.0, level: float = 0.3) -> None:
        """Time passes, in steps of 20 ms, in which tones of so many Hz are heard and played."""
        for _ in range(round(seconds * 50)):
            if not self.plays_itself:
                self.recording.played(tone(plays, 24_000, self.clock.now, level), 24_000)
            self.clock.now += 0.02
            self.recording.heard(tone(hears, 16_000, self.clock.now, level) / np.float32(32767))
            if round((self.clock.now - 100) * 50) % 25 == 0:
                self.write()

    def write(self) -> None:
        self.open = self.open and self.recording.write(self.clock.now)

    def end(self) -> None:
        self.recording.closed("hung up")
        while self.open:
            self.write()


def tone(hertz: float, rate: int, at: float, level: float = 0.3, seconds: float = 0.02) -> Int16 | Float32:
    time = at + np.arange(round(rate * seconds)) / rate
    wave = 32767 * level * np.sin(2 * np.pi * hertz * time)
    return wave.astype(np.int16 if rate != 16_000 else np.float32)


@pytest.fixture
def call(tmp_path: Path) -> Call:
    return Call(tmp_path / "call.ogg")


def test_the_caller_is_left_and_the_assistant_right_each_in_its_place(call: Call) -> None:
    call.run(1.0)
    call.run(1.5, hears=500)
    call.run(1.0)
    call.run(2.0, plays=300)
    call.run(0.5)
    call.end()
    left, right = read(call.path)
    assert len(left) / 48_000 == pytest.approx(6.0, abs=0.06)
    assert spans(left) == [pytest.approx((1.0, 2.5), abs=0.03)]
    assert spans(right) == [pytest.approx((3.5, 5.5), abs=0.03)]
    assert hertz(left[48_000:110_000]) == pytest.approx(500, abs=3)
    assert hertz(right[180_000:250_000]) == pytest.approx(300, abs=3)


def test_what_a_client_plays_itself_is_cut_where_it_stopped(call: Call) -> None:
    call.plays_itself = True
    call.run(1.0)
    for n in range(10):
        call.recording.queued("item_1", tone(300, 24_000, n * 0.5, seconds=0.5), 24_000)
    call.run(2.0)
    call.recording.stopped("", 0)
    call.run(1.0)
    call.recording.queued("item_2", tone(300, 8_000, 0, seconds=2.0), 8_000)
    call.recording.stopped("item_2", 500)
    call.run(1.0)
    call.recording.queued("item_3", tone(300, 24_000, 0, seconds=9.0), 24_000)
    call.run(1.0)
    call.end()
    left, right = read(call.path)
    found = [(1.0, 3.0), (4.0, 4.5), (5.0, 6.0)]
    assert spans(right) == [pytest.approx(each, abs=0.03) for each in found]
    assert len(left) / 48_000 == pytest.approx(6.0, abs=0.07)


def test_a_recording_that_nobody_ended_has_all_but_the_last_two_seconds(call: Call) -> None:
    call.run(7.0, hears=500)
    left, _ = read(call.path)
    assert len(left) / 48_000 > 5.0
    assert spans(left)[0] == pytest.approx((0.0, len(left) / 48_000), abs=0.1)


def test_only_its_owner_can_read_it(call: Call) -> None:
    call.run(1.0)
    assert stat.S_IMODE(call.path.stat().st_mode) == 0o600


def test_a_session_without_sound_leaves_no_file(tmp_path: Path) -> None:
    writer = Writer()
    writer.start()
    recording = Recording(tmp_path / "none.ogg", writer)
    recording.sent({"type": "session.created"})
    recording.stopped("", 0)
    recording.closed("wrong settings")
    writer.stop(5)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk() -> object:
    """No file can be larger than 32 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32_768, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_a_recording_once_and_in_words(
    call: Call, small_disk: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        call.run(30.0, hears=500, plays=300)
    assert not call.open
    assert call.writer.failures == 1
    assert len(caplog.records) == 1
    assert len(call.recording._waiting) == 0
    left, _ = read(call.path)
    assert len(left) / 48_000 > 2


def test_a_disk_that_hangs_costs_a_bounded_amount_of_memory(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    sound = np.zeros(320, np.float32)
    for _ in range(2 * _MOST_BYTES // sound.nbytes):
        call.recording.heard(sound)
    assert len(call.recording._waiting) == 0
    assert call.writer.failures == 1
    call.write()
    assert not call.open


def test_pieces_of_a_second_are_where_they_were_spoken(call: Call) -> None:
    for n in range(6):
        level = 0.3 if n in (1, 4) else 0.0
        call.clock.now += 0.5
        call.write()
        call.clock.now += 0.5
        call.recording.heard(tone(500, 16_000, 0, level, 1.0) / np.float32(32767))
        call.write()
    call.end()
    left, _ = read(call.path)
    assert spans(left) == [pytest.approx(each, abs=0.03) for each in ((1.0, 2.0), (4.0, 5.0))]
    assert len(left) / 48_000 == pytest.approx(6.0, abs=0.07)


def test_all_is_kept_of_a_client_that_is_faster_than_the_clock(call: Call) -> None:
    for n in range(100):
        call.clock.now += 0.005
        level = 0.3 if n // 10 in (1, 4) else 0.0
        call.recording.heard(tone(500, 16_000, 0, level, 0.1) / np.float32(32767))
    call.end()
    left, _ = read(call.path)
    assert spans(left) == [pytest.approx(each, abs=0.1) for each in ((1.0, 2.0), (4.0, 5.0))]
    assert len(left) / 48_000 == pytest.approx(10.0, abs=0.1)
    assert call.writer.failures == 0


def test_sound_that_is_too_far_ahead_is_counted_and_said_once(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    sound = np.full(16_000, 0.1, np.float32)
    for _ in range(13):
        for _ in range(50):
            call.recording.heard(sound)
        call.write()
    assert call.open
    assert call.writer.failures == len(caplog.records) == 1
    assert "far ahead of the clock" in caplog.text


def test_a_large_recording_lets_others_have_their_turn(call: Call) -> None:
    for _ in range(25):
        call.recording.heard(np.full(16_000, 0.1, np.float32))
    call.recording.closed("hung up")
    turns = 1
    while call.recording.write(call.clock.now):
        turns += 1
    assert turns == 3
    left, _ = read(call.path)
    assert len(left) / 48_000 == pytest.approx(25, abs=0.1)


def _wait(hangs: threading.Event) -> None:
    assert hangs.wait(10)


def test_what_is_not_whole_when_the_server_stops_is_named_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, writer = threading.Event(), Writer()
    writer.start()
    writer.do(partial(_wait, hangs))
    recording = Recording(tmp_path / "call.ogg", writer)
    recording.heard(np.zeros(16_000, np.float32))
    recording.closed("hung up")
    JsonLines(tmp_path / "call.jsonl", writer).keep({"type": "text"})
    writer.stop(0.05)
    hangs.set()
    assert writer.failures == 2
    assert "call.ogg is not complete" in caplog.text
    assert "call.jsonl is not complete" in caplog.text


def test_a_recording_that_is_deleted_during_the_call_is_counted(
    call: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    call.run(5.0, hears=500)
    call.path.unlink()
    assert open_files(tmp_path) != []
    call.end()
    assert not call.open
    assert call.writer.failures == 1
    assert "deleted before the call had ended" in caplog.text
    assert open_files(tmp_path) == []


def test_many_lines_do_not_hold_up_the_sound(tmp_path: Path) -> None:
    class Sound:
        turns = 0

        def write(self, now: float) -> bool:
            self.turns += 1
            return self.turns < 3

    writer, sound = Writer(), Sound()
    writer.start()
    writer.add(sound)

    def line() -> None:
        if sound.turns < 2:
            writer.do(line)

    line()
    writer.stop(5)
    assert sound.turns == 3


async def test_an_offer_that_is_refused_leaves_no_files(tmp_path: Path) -> None:
    async with serving(tmp_path) as http:
        headers = {"Content-Type": "application/sdp"}
        async with http.post("/v1/realtime/calls", data="x", headers=headers) as response:
            assert response.status == 400
    assert os.listdir(tmp_path) == []


def test_a_recording_that_was_given_up_holds_no_file(tmp_path: Path, small_disk: None) -> None:
    call = Call(tmp_path / "call.ogg")
    call.run(30.0, hears=500, plays=300)
    assert not call.open
    assert open_files(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"--record-calls is .*nothing can be written there"):
        prepare(tmp_path / "file" / "calls", "--record-calls")


def test_a_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    prepare(tmp_path / "calls", "--record-calls")
    assert stat.S_IMODE((tmp_path / "calls").stat().st_mode) == 0o700
    assert list((tmp_path / "calls").iterdir()) == []


def test_a_record_that_breaks_does_not_break_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def write(self, now: float) -> bool:
            raise ZeroDivisionError

    done: list[int] = []
    writer = Writer()
    writer.start()
    writer.add(Broken())
    writer.do(lambda: done.append(1 // 0))
    writer.do(lambda: done.append(2))
    writer.stop(5)
    assert done == [2]
    assert writer.failures == 2
