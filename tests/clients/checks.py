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


def of(checks: dict[str, Seen], name: str) -> Seen:
    """What a check saw, if it went through without an error."""
    seen = checks[name]
    assert "failed" not in seen, seen["failed"]
    assert seen["errors"] == []
    return seen
