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


class Writes(Protocol):
    """Something that is written bit by bit, on the writer's thread."""

    def write(self, now: float) -> bool:
        """Write what has come until ``time.monotonic()`` was ``now``. False: that was all."""


class Writer:
    """Does what it is given, in order, on a thread of its own. A failing disk costs records, never a call."""

    def __init__(self) -> None:
        self.failures = 0
        """Records that were given up."""
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._written: list[Writes] = []
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Finish what there is. Blocks, but no longer than that."""
        self._jobs.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            logger.warning("The last records were not written in %g s.", seconds)

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return self._jobs.qsize()

    def do(self, job: Callable[[], None]) -> None:
        """Do ``job``. From any thread."""
        self._jobs.put(job)

    def add(self, written: Writes) -> None:
        """Have this written, from now on until it says that it is done. From any thread."""
        self.do(lambda: self._written.append(written))

    def give_up(self, path: Path, error: object) -> None:
        """A record cannot be written any further."""
        self.failures += 1
        logger.error("%s is not complete: %s.", path, error)

    def _run(self) -> None:
        due = 0.0
        while True:
            wait = max(0.0, due - time.monotonic()) if self._written else None
            try:
                job = self._jobs.get(timeout=wait)
            except Empty:
                due = time.monotonic() + PERIOD
                self._write()
                continue
            if job is None:
                break
            self._safely(job)
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
        """It is whole. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
