"""A server in a process of its own, started as a person starts it, but that its events are checked."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

SCRIPTED = tuple(f"--{engine}=scripted" for engine in ("vad", "turn-detector", "stt", "llm-backend", "tts"))
"""Flags for engines that load and answer at once."""

READY = "Duologue is ready: "


class Served:
    """A running server: its address, and what it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        self._news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            self._news.put(line.rstrip())
        self._news.put(None)

    def wait_ready(self, timeout: float) -> None:
        """Wait for the line that names the address."""
        self.url = self.wait_line(READY, timeout).removeprefix(READY)

    def wait_line(self, beginning: str, timeout: float = 20.0) -> str:
        """The next line that begins like this."""
        while (line := self._news.get(timeout=timeout)) is not None:
            if line.startswith(beginning):
                return line
        raise AssertionError(f"the server ended before it said {beginning!r}:\n" + "\n".join(self.lines))

    def stop(self, timeout: float = 20.0) -> int:
        """Ask it to stop; its exit code."""
        self.process.terminate()
        return self.process.wait(timeout)


@contextmanager
def serving(
    *flags: str,
    timeout: float = 120.0,
    prefix: Sequence[str] = (),
    program: Sequence[str] = ("-m", "tests.protocol.tapped"),
    environment: Mapping[str, str] = MappingProxyType({}),
    exits: int | None = 0,
) -> Iterator[Served]:
    """``duologue serve`` with ``flags`` on a free port, until the block ends. It must exit with ``exits``;
    None: it dies in the block.

    ``prefix`` goes in front of the command, such as ``nsenter`` and its arguments.
    """
    process = subprocess.Popen(
        [*prefix, sys.executable, *program, "serve", "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    served = Served(process)
    try:
        served.wait_ready(timeout)
        yield served
        assert exits is None or served.stop() == exits, "\n".join(served.lines)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
