"""``duologue bench``: run the benchmarks and print what they found."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import barge_in, load, voice
from benchmarks.figures import CannotRun, Figure, table
from benchmarks.noise import Noise, Watch
from benchmarks.voice import Progress

Benchmark = Callable[[bool, Progress], Awaitable[list[Figure]]]

BENCHMARKS: dict[str, Benchmark] = {
    "voice-scripted": voice.voice_scripted,
    "voice-semantic": voice.voice_semantic,
    "voice-real": voice.voice_real,
    "barge-in": barge_in.barge_in,
    "barge-in-real": barge_in.barge_in_real,
    "memory": load.memory,
    "idle": load.idle,
    "idle-real": load.idle_real,
    "calls": load.calls,
}

_DESCRIPTION = (
    "Measure a server that is started for it, through real WebRTC calls on this machine. Run it while the "
    "machine does nothing else. Without a NAME: all of "
) + ", ".join(BENCHMARKS)


def add_bench_command(subparsers: Any) -> None:
    """Add the command; ``namespace.run(namespace)`` returns the exit code."""
    command = subparsers.add_parser(
        "bench", help="measure latency, memory and load", description=f"{_DESCRIPTION}."
    )
    command.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BENCHMARKS)}")
    command.add_argument(
        "--quick", action="store_true", help="fewer turns: for a first look, not for a claim"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write every value to this file, too")
    command.set_defaults(run=bench)


def bench(namespace: argparse.Namespace) -> int:
    """Exit code: 0 when every benchmark could be run, whatever it found; 1 otherwise, 2 for a wrong name."""
    names = list(dict.fromkeys(namespace.names)) or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        sys.stderr.write(
            f"duologue: there is no benchmark {unknown[0]!r}; choose from: {', '.join(BENCHMARKS)}.\n"
        )
        return 2
    figures, noise, failures = run(names, namespace.quick, _progress)
    _progress("")
    print(report(figures, noise))
    for failure in failures:
        sys.stderr.write(f"duologue: {failure}\n")
    if namespace.json is not None:
        namespace.json.write_text(json.dumps(record(figures, noise), indent=1) + "\n")
    return 1 if failures else 0


def run(names: Sequence[str], quick: bool, progress: Progress) -> tuple[list[Figure], list[Noise], list[str]]:
    """Run the benchmarks in turn: what they found, how noisy it was, and which could not be run and why."""
    figures: list[Figure] = []
    watch = Watch()
    noise = [watch.look("before")]
    failures = []
    for name in names:
        try:
            figures += asyncio.run(_one(name, quick, progress))
        except (CannotRun, TimeoutError) as error:
            failures.append(f"{name} could not be run: {error}")
        noise.append(watch.look(f"after {name}"))
    return figures, noise, failures


async def _one(name: str, quick: bool, progress: Progress) -> list[Figure]:
    return await BENCHMARKS[name](quick, progress)


def report(figures: Sequence[Figure], noise: Sequence[Noise]) -> str:
    """The table, and under it how quiet the machine was."""
    lines = [table(figures), "", f"{machine()}; noise (median / p95):", *(each.line() for each in noise)]
    return "\n".join(lines)


def record(figures: Sequence[Figure], noise: Sequence[Noise]) -> dict[str, Any]:
    """All of it, for a file."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "figures": [figure.json() for figure in figures],
        "noise": [each.json() for each in noise],
    }


def machine() -> str:
    """What this was measured on."""
    system = f"{platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, {system}, Python {platform.python_version()}"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
