"""The soak finds what it looks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from server.records.recording import Recording
from server.records.writer import Writer
from tests.e2e.lasting_call import Ear, phrase
from tests.e2e.soak import longest_silence_ms
from units.messages import EAR_RATE


@pytest.mark.parametrize("hole_ms", [0, 250])
def test_a_hole_in_what_the_caller_said_is_found_in_the_recording(tmp_path: Path, hole_ms: int) -> None:
    now = 0.0
    recording = Recording(tmp_path / "call.ogg", Writer(), lambda: now)
    recording.sent({"type": "session.created"})
    said = np.tile(phrase(), 2)[::3].astype(np.float32) / 32768
    heard = np.repeat(said, 2)[: 20 * EAR_RATE]
    heard[7 * EAR_RATE : 7 * EAR_RATE + hole_ms * EAR_RATE // 1000] = 0
    for piece in heard.reshape(-1, EAR_RATE // 50):
        now += 0.02
        recording.heard(piece)
    recording.closed("done")
    recording.write(now)
    assert longest_silence_ms(tmp_path / "call.ogg") == pytest.approx(hole_ms, abs=20)


def test_packets_that_never_came_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.02, 1.3, 1.35])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    ear = Ear()
    for timestamp in (0xFFFF_FFFF - 959, 0, 4 * 960):
        ear.packet(111, b"", timestamp)
    assert (ear.missing, ear.longest_gap()) == (3, 280.0)
