"""The server that is measured: a process of its own, and what it uses."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.figures import CannotRun

SEMANTIC = ("--stt", "scripted", "--llm-backend", "scripted", "--tts", "scripted")
"""Engines that answer at once, and the real ones that tell where a turn begins and ends."""
SCRIPTED = (*SEMANTIC, "--vad", "silero", "--turn-detector", "none")
"""Engines that answer at once, and the real voice activity detector."""

_READY = "Duologue is ready: "
_START_S = 300.0
_STOP_S = 15.0


class Served:
    """A running server. What it uses is read from ``/proc``, which only Linux has."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self._folder = Path(f"/proc/{pid}")

    @property
    def rss_mb(self) -> float:
        """Resident memory, in MB. Raises CannotRun."""
        return sum(_fields(text, "VmRSS") for text in self._read("status")) * 1024 / 1e6

    @property
    def cpu_s(self) -> float:
        """CPU time of all its threads that are alive, in seconds. Raises CannotRun."""
        return sum(int(text.split()[0]) for text in self._read("task/*/schedstat")) / 1e9

    @property
    def switches(self) -> int:
        """Context switches of all its threads that are alive. Raises CannotRun."""
        return sum(_fields(text, "ctxt_switches") for text in self._read("task/*/status"))

    def _read(self, pattern: str) -> list[str]:
        texts = [path.read_text() for path in self._folder.glob(pattern)]
        if not texts:
            raise CannotRun("What a process uses is read from /proc, which only Linux has.")
        return texts


def _fields(status: str, name: str) -> int:
    """The sum of the fields of ``/proc/PID/status`` whose names contain ``name``."""
    return sum(int(line.split()[1]) for line in status.splitlines() if name in line.partition(":")[0])


@asynccontextmanager
async def serving(
    *flags: str, units: int = 1, program: Sequence[str] = ("-m", "server")
) -> AsyncIterator[Served]:
    """Start a server with ``flags`` on a free port, wait until it is ready, and stop it in the end.

    Raises CannotRun with what the server said when it does not start.
    """
    command = [sys.executable, *program, "serve", "--port", "0", "--num-pipelines", str(units)]
    command += ["--log-level", "warning", "--keys-file", os.devnull, "--sessions-per-minute", "0", *flags]
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "DUOLOGUE_API_KEY": ""},
        )
        try:
            url = await _ready(process)
            if url is None:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().splitlines()
                raise CannotRun(f"The server did not start: {said[-1] if said else 'it said nothing.'}")
            yield Served(url, process.pid)
        finally:
            await _stop(process)


async def _ready(process: asyncio.subprocess.Process) -> str | None:
    """The server's address, once it says that it is ready; None when it ends or takes too long."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_S):
            async for line in process.stdout:
                if line.startswith(_READY.encode()):
                    return line.decode().removeprefix(_READY).strip()
    except TimeoutError:
        pass
    return None


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
