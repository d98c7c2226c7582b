"""What the tests of other people's clients share: a running server, and the folder of the agents SDK."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.serving import SCRIPTED, Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server with scripted engines and two units."""
    with serving(*SCRIPTED, "--num-pipelines", "2") as served:
        yield served


@pytest.fixture(scope="session")
def agents_js() -> Path:
    """The folder with @openai/agents, which script/test installs."""
    folder = Path(__file__).parent / "agents_js"
    if shutil.which("node") is None or not (folder / "node_modules").is_dir():
        lacking = "@openai/agents is not installed: script/test does it, with Node.js"
        if os.environ.get("CI"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    return folder
