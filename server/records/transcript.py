"""What was said in a call, a record each: that it began, what was said and done, how it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from server.logs import timestamp
from server.records.writer import PrivateFile, Writer
from server.watch import Begun
from units.messages import Float32, Int16, Said
from units.observe import Observer

Record = dict[str, Any]
Keep = Callable[[Record], None]
"""Takes a record, on the event loop; does not block."""


class Transcript(Observer):
    """Writes one call down. There is no record of a session in which nothing was heard, played or said."""

    def __init__(self, begun: Begun, keep: Sequence[Keep], clock: Callable[[], float] = time.time) -> None:
        self._begun = begun
        self._keep = keep
        self._clock = clock
        self._began = clock()
        self._session_id = ""
        self._first: Record | None = None  # kept back until there is something to tell of

    def sent(self, event: dict[str, Any]) -> None:
        if not self._session_id:
            session = event["session"]  # the first event is session.created
            self._session_id = session["id"]
            self._first = self._record("call.began", door=self._begun.door, model=session.get("model"))

    def heard(self, samples: Float32) -> None:
        self._begin()

    def played(self, samples: Int16, rate: int) -> None:
        self._begin()

    def queued(self, item_id: str, samples: Int16, rate: int) -> None:
        self._begin()

    def said(self, said: Said) -> None:
        self._begin()
        members = {name: value for name, value in asdict(said).items() if value or name == "text"}
        self._add(members.pop("kind"), **members)

    def closed(self, reason: str) -> None:
        if self._session_id and self._first is None:
            self._add("call.ended", reason=reason, seconds=round(self._clock() - self._began, 3))

    def _begin(self) -> None:
        if self._first is not None:
            first, self._first = self._first, None
            self._give(first)

    def _add(self, kind: str, **members: Any) -> None:
        self._give(self._record(kind, **members))

    def _record(self, kind: str, **members: Any) -> Record:
        where = {"call_id": self._begun.id, "session_id": self._session_id}
        return {"time": timestamp(self._clock()), "type": kind, **where, **members}

    def _give(self, record: Record) -> None:
        for keep in self._keep:
            keep(record)


class JsonLines:
    """One call's records in a file, a line each, written as they come."""

    def __init__(self, path: Path, writer: Writer) -> None:
        self._path = path
        self._writer = writer
        self._begun = self._full = False
        # What follows is touched on the writer's thread only.
        self._file: PrivateFile | None = None
        self._broken = False

    def keep(self, record: Record) -> None:
        """Have the writer append it."""
        if self._full:
            return
        if not self._begun:
            self._begun = True
            self._writer.begin(self._path)
        line = encoded(record) + b"\n"
        if self._writer.takes(len(line)):
            self._writer.do(partial(self._append, line, record["type"] == "call.ended"), len(line))
        else:
            self._full = True
            self._writer.give_up(self._path, "the disk is too slow")
            self._writer.do(self._close)  # after the lines that wait already

    def _append(self, line: bytes, last: bool) -> None:
        if self._broken:
            return
        try:
            if self._file is None:
                self._file = PrivateFile(self._path)
            self._file.write(line)
            if last:
                self._file.close()
                self._writer.end(self._path)
        except OSError as error:
            self._broken = True
            self._writer.give_up(self._path, error)
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def encoded(record: Record) -> bytes:
    """As JSON, on one line."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
