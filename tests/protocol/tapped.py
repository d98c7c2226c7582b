"""``python -m tests.protocol.tapped serve ...``: the server, whose events are checked on their way out.

Problems are appended to the file that the environment names; the tests fail on them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from server.__main__ import main
from tests.protocol.tap import Tap

PROBLEMS = "TEST_PROBLEMS"
"""The variable with the path of the file."""


def note(problem: str) -> None:
    with Path(os.environ[PROBLEMS]).open("a", encoding="utf-8") as file:
        file.write(problem + "\n")


if __name__ == "__main__":
    with Tap(note).open():
        sys.exit(main())
