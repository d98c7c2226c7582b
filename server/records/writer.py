"""The one thread that writes records, so that a slow disk keeps no call waiting."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from server.settings_sources import SettingsError

logger = logging.getLogger(__name__)

PERIOD = 0.5
"""Seconds between two times that sound is written: what a call collects meanwhile is lost in a crash."""
MOST_BYTES = 32 << 20
"""Of lines that wait for a disk that does not take them."""


class Writes(Protocol):
    """Something that is written bit by bit, on the writer's thread."""

    def write(self, now: float) -> bool:
        """Write what has come until ``time.monotonic()`` was ``now``. False: that was all."""


class Writer:
    """Does what it is given, in order, on a thread of its own. A failing disk costs records, never a call."""

    def __init__(self) -> None:
        self.failures = 0
        """Records that were given up."""
        self._jobs: SimpleQueue[tuple[Callable[[], None], int] | None] = SimpleQueue()
        self._given = self._done = 0  # bytes: each is changed on one thread only
        self._unfinished: set[Path] = set()
        self._written: list[Writes] = []
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Finish what there is. Blocks, but no longer than that: what is not whole by then is given up."""
        self._jobs.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            for path in sorted(self._unfinished.copy()):
                self.give_up(path, f"the last records were not written in {seconds:g} s")

    def takes(self, size: int) -> bool:
        """Not so much waits already that ``size`` bytes more are too many."""
        return self._given - self._done + size <= MOST_BYTES

    def do(self, job: Callable[[], None], size: int = 0) -> None:
        """Do ``job``, which holds ``size`` bytes until then. From one thread."""
        self._given += size
        self._jobs.put((job, size))

    def add(self, written: Writes) -> None:
        """Have this written, from now on until it says that it is done. From the same thread."""
        self.do(lambda: self._written.append(written))

    def begin(self, path: Path) -> None:
        """There will be a file."""
        self._unfinished.add(path)

    def end(self, path: Path) -> None:
        """The file is whole."""
        self._unfinished.discard(path)

    def give_up(self, path: Path, error: object) -> None:
        """The file will not be whole. Said and counted once for each."""
        if path in self._unfinished:
            self._unfinished.discard(path)
            self.failures += 1
            logger.error("%s is not complete: %s.", path, error)

    def _run(self) -> None:
        due = 0.0
        while True:
            if self._written and time.monotonic() >= due:
                self._write()
                due = time.monotonic() + PERIOD
            wait = max(0.0, due - time.monotonic()) if self._written else None
            try:
                job = self._jobs.get(timeout=wait)
            except Empty:
                continue
            if job is None:
                break
            self._safely(job[0])
            self._done += job[1]
        while self._written:
            self._write()

    def _write(self) -> None:
        now = time.monotonic()
        self._written = [each for each in self._written if self._safely(partial(each.write, now))]

    def _safely(self, job: Callable[[], object]) -> object:
        """What is wrong with one record must not end the others."""
        try:
            return job()
        except Exception:
            logger.exception("A record failed.")
            self.failures += 1
            return None


def prepare(folder: Path, flag: str) -> None:
    """Make the folder if it is not there. Raises SettingsError when nothing can be written there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = error.strerror or error
        raise SettingsError(f"{flag} is {str(folder)!r}; nothing can be written there: {reason}.") from None


class PrivateFile:
    """A new file that only its owner can read. Raises OSError."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)

    def write(self, data: bytes) -> int:
        """All of it, at once."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return len(data)

    def close(self) -> None:
        """It is whole. Idempotent. Raises OSError, but it is closed then as well."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            deleted = os.fstat(descriptor).st_nlink == 0
            os.close(descriptor)
            if deleted:
                raise FileNotFoundError("it was deleted before the call had ended")
