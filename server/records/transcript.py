"""What was said in a call, a record each: that it began, what was said and done, how it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from server.records.writer import PrivateFile, Writer
from server.watch import Begun
from units.messages import Said
from units.observe import Observer

_MOST_WAITING = 10_000
"""Records that wait for a disk that does not take them."""

Record = dict[str, Any]
Keep = Callable[[Record], None]
"""Takes a record, on the event loop; does not block."""


class Transcript(Observer):
    """Writes one call down, from when its session has begun."""

    def __init__(self, begun: Begun, keep: Sequence[Keep], clock: Callable[[], float] = time.time) -> None:
        self._begun = begun
        self._keep = keep
        self._clock = clock
        self._began = clock()
        self._session_id = ""

    def sent(self, event: dict[str, Any]) -> None:
        if not self._session_id:
            session = event["session"]  # the first event is session.created
            self._session_id = session["id"]
            self._add("call.began", door=self._begun.door, model=session.get("model"))

    def said(self, said: Said) -> None:
        members = {name: value for name, value in asdict(said).items() if value or name == "text"}
        self._add(members.pop("kind"), **members)

    def closed(self, reason: str) -> None:
        if self._session_id:
            self._add("call.ended", reason=reason, seconds=round(self._clock() - self._began, 3))

    def _add(self, kind: str, **members: Any) -> None:
        where = {"call_id": self._begun.id, "session_id": self._session_id}
        record = {"time": timestamp(self._clock()), "type": kind, **where, **members}
        for keep in self._keep:
            keep(record)


class JsonLines:
    """One call's records in a file, a line each, written as they come."""

    def __init__(self, path: Path, writer: Writer) -> None:
        self._path = path
        self._writer = writer
        self._file: PrivateFile | None = None
        self._given_up = False

    def keep(self, record: Record) -> None:
        """Have the writer append it."""
        if self._given_up:
            return
        if self._writer.waiting > _MOST_WAITING:
            self._give_up("the disk is too slow")
        else:
            self._writer.do(lambda: self._append(record))

    def _append(self, record: Record) -> None:
        if self._given_up:
            return
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        try:
            if self._file is None:
                self._file = PrivateFile(self._path)
            self._file.write(line.encode("utf-8", "replace"))
            if record["type"] == "call.ended":
                self._file.close()
        except OSError as error:
            self._give_up(error)
            if self._file is not None:
                self._file.close()

    def _give_up(self, error: object) -> None:
        self._given_up = True
        self._writer.give_up(self._path, error)


def timestamp(at: float) -> str:
    """A Unix time as of RFC 3339, in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
