"""Imported before everything that takes long to import: Ctrl+C meanwhile ends the process without a
traceback, as it does later (:mod:`server.logs`)."""

from __future__ import annotations

import sys
from types import TracebackType


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = _hook
