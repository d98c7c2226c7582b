"""What is in the wheel: a server that is installed needs its page and its type information."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from server.app import client_web_dir
from server.page import PRIVATE, TYPES

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("duologue-*.whl")
    with zipfile.ZipFile(file) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_whole_page(wheel: set[str]) -> None:
    files = [
        path.relative_to(ROOT / "client_web") for path in (ROOT / "client_web").rglob("*") if path.is_file()
    ]
    page = {file for file in files if file.suffix in TYPES and not PRIVATE & set(file.parts)}
    assert Path("index.html") in page
    assert {f"server/client_web/{file.as_posix()}" for file in page} <= wheel


def test_the_wheel_holds_no_tests(wheel: set[str]) -> None:
    assert not [name for name in wheel if "tests/" in name or "node_modules" in name]


def test_the_wheel_holds_every_module_and_says_that_it_is_typed(wheel: set[str]) -> None:
    modules = {
        path.relative_to(ROOT).as_posix()
        for name in ("units", "server")
        for path in (ROOT / name).rglob("*.py")
    }
    assert modules | {"units/py.typed", "server/py.typed"} <= wheel


def test_in_a_checkout_the_page_is_the_checkouts() -> None:
    assert client_web_dir() == ROOT / "client_web"
