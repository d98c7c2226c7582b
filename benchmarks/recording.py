"""What the recording of a call costs: ``python -m benchmarks.recording``.

Ten minutes in which caller and assistant speak in turns go through a recording, as fast as it can, on a
clock of their own. The encoder and the file are real.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.caller import at_rate
from benchmarks.clips import clips
from server.records.recording import Recording
from server.records.tracks import RATE
from server.records.writer import PERIOD, Writer
from units.messages import EAR_RATE, Int16

SECONDS = 600
STEP = 0.02


def main() -> None:
    """Print one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.ogg"
        on_loop, on_thread = cost(path, SECONDS)
        size = path.stat().st_size
    percent = 100 / SECONDS
    sys.stdout.write(
        f"A recording takes {percent * (on_loop + on_thread):.2f} % of a core, of which "
        f"{percent * on_loop:.2f} % on the event loop, and {size / SECONDS * 3600 / 1e6:.0f} MB an hour.\n"
    )


def cost(path: Path, seconds: int) -> tuple[float, float]:
    """CPU seconds that handing over takes, and writing."""
    speech, answers = _conversation(seconds)
    heard = (at_rate(speech, RATE, EAR_RATE) / np.float32(32768)).astype(np.float32)
    now, on_loop, on_thread = 0.0, 0.0, 0.0
    recording = Recording(path, Writer(), lambda: now)
    recording.sent({"type": "session.created"})
    per_write = round(PERIOD / STEP)
    for step in range(round(seconds / STEP)):
        began = time.process_time()
        recording.played(answers[step * 480 : step * 480 + 480], RATE)
        now = (step + 1) * STEP
        recording.heard(heard[step * 320 : step * 320 + 320])
        on_loop += time.process_time() - began
        if step % per_write == per_write - 1:
            began = time.process_time()
            recording.write(now)
            on_thread += time.process_time() - began
    recording.closed("done")
    recording.write(now)
    return on_loop, on_thread


def _conversation(seconds: int) -> tuple[Int16, Int16]:
    """Two sides that speak in turns, a second apart: int16 mono at :data:`RATE`."""
    sides: list[list[Int16]] = [[], []]
    total, pause = 0, np.zeros(RATE, np.int16)
    while total < seconds * RATE:
        for turn, clip in enumerate(clips()):
            for side in (0, 1):
                sides[side] += [clip if turn % 2 == side else np.zeros_like(clip), pause]
            total += len(clip) + len(pause)
    caller, assistant = (np.concatenate(side)[: seconds * RATE] for side in sides)
    return caller, assistant


if __name__ == "__main__":
    main()
