from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.recording import cost
from tests.server.records.ogg import read, spans


def test_what_is_measured_is_a_whole_recording(tmp_path: Path) -> None:
    on_loop, on_thread = cost(tmp_path / "call.ogg", 12)
    assert 0 < on_loop < on_thread < 12
    left, right = read(tmp_path / "call.ogg")
    assert len(left) / 48_000 == pytest.approx(12, abs=0.07)
    assert spans(left)
    assert spans(right)
