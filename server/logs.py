"""The log: on stderr, as text or as JSON, where every line says which call it is about, if that is known.

It is known from the ambient scope (:func:`units.scope.current_scope`): the doors enter one for each call,
the session one for what it does, the stage threads one for each piece of work. A logger call adds to that, or
says otherwise, with ``extra={"about": {...}}``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from units.scope import current_scope

logger = logging.getLogger(__name__)


def configure_logging(level: str, format: str = "text") -> None:
    """Log to stderr: what is ours from ``level`` on, what is others' from WARNING on.

    Python's warnings and errors that nobody caught are logged, too. Where something else has set up logging
    already, only the level is set.
    """
    for ours in ("units", "server"):
        logging.getLogger(ours).setLevel(level.upper())
    logging.getLogger("aiohttp.server").addFilter(_malformed)
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.addFilter(About())
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    sys.excepthook = lambda _kind, error, _traceback: _log_crash("the process", error)
    threading.excepthook = _thread_crashed


class About(logging.Filter):
    """Notes in ``record.about`` what the line is about. Lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.about = {**current_scope().ids, **getattr(record, "about", {})}
        return True


class Malformed(logging.Filter):
    """aiohttp logs each request that is no HTTP with a traceback that quotes it, and what it quotes may be a
    key. Here that is one line of ours, at most one in ``every`` seconds, whoever sends how much."""

    def __init__(self, every: float = 10.0) -> None:
        super().__init__()
        self._every = every
        self._refused = 0
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            return True
        self._refused += 1
        if record.created >= self._quiet_until:
            logger.info("requests that are no HTTP: %d, now %s", self._refused, type(error).__name__)
            self._refused, self._quiet_until = 0, record.created + self._every
        return False


_malformed = Malformed()


class JsonLines(logging.Formatter):
    """One object a line, in ASCII: time, level, logger, message, what it is about, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "about", {}),
        }
        if trace := _trace(self, record):
            line["exception"] = trace
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """For people. What a message says cannot look like a line of its own: a traceback is indented, and
    characters that move the cursor are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        call = getattr(record, "about", {}).get("call")
        where = f"{record.name} [{call}]" if call else record.name
        head = f"{timestamp(record.created)} {record.levelname:7} {where}: {_printable(record.getMessage())}"
        rest = _trace(self, record).split("\n")
        return "\n".join([head, *(f"    {_printable(line)}" for line in rest if line)])


def timestamp(at: float) -> str:
    """A Unix time as of RFC 3339, in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Traceback, and stack if it was asked for; "" if there is neither."""
    error = formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
    return "\n".join(part for part in (error, record.stack_info or "") if part)


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def log_uncaught(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For ``loop.set_exception_handler``. asyncio's own would show the arguments of callbacks, and among them
    what a caller said."""
    message = "an error in a callback" if "handle" in context else context["message"]
    logger.error("%s", message, exc_info=context.get("exception"))


def _log_crash(what: str, error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt):
        return
    logger.critical("%s died", what, exc_info=error)


def _thread_crashed(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        _log_crash(f"thread {args.thread.name if args.thread else '?'}", args.exc_value)
