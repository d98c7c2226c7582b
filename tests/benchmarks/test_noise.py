"""What is said about the machine."""

from __future__ import annotations

import os
import time

from benchmarks.noise import Watch


def test_a_look_at_the_machine_says_how_long_work_and_naps_take() -> None:
    noise = Watch().look("now", times=5)
    assert 0 < noise.loop.median < 1000
    assert noise.late.median >= 0
    assert noise.line().startswith("now")


def test_what_others_take_and_what_we_take_is_at_most_all_there_is() -> None:
    watch = Watch()
    began, own = time.monotonic(), time.process_time()
    while time.process_time() - own < 0.3:
        pass
    others = watch.look("now", times=1).others
    passed = time.monotonic() - began
    assert others * passed + 0.3 <= (os.cpu_count() or 1) * passed + 0.1
