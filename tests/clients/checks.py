"""What the scripts of stock clients print: one line of JSON for each check."""

from __future__ import annotations

import json
import subprocess
from typing import Any

Seen = dict[str, Any]


def run_checks(*command: str) -> dict[str, Seen]:
    """What each check of a script saw, by its name."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.pop("check"): line for line in lines}


def too_late(error: Any) -> bool:
    """Whether this is said to a client whose ``response.cancel`` crossed the ``response.done``."""
    return isinstance(error, dict) and error.get("code") == "response_cancel_not_active"


def of(checks: dict[str, Seen], name: str, *, cancels: bool = False) -> Seen:
    """What a check saw, if it went through without an error. One that ``cancels`` may come too late."""
    seen = checks[name]
    assert "failed" not in seen, seen["failed"]
    errors = [error for error in seen["errors"] if not (cancels and too_late(error))]
    assert errors == []
    return seen
