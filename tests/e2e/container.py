"""Builds the Dockerfile and runs what comes of it, as root on Debian, where there is no container engine.

``python -m tests.e2e.container`` builds it, and needs nothing but the standard library, so that it can begin
before all else is installed; who builds at the same time waits for it.

The base image is a small Debian, made once and kept, with what was built, in the user's cache folder. What
pip is told on this machine (indexes, certificates, its cache) it is told in the build, too.
"""

from __future__ import annotations

import ast
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.serving import Served

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
BASE = "localhost/python:3.11-bookworm"
IMAGE = "localhost/duologue:tested"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_STORE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duologue" / "containers"
_RUN = Path("/run/duologue-containers")
_WHERE = ("--root", str(_STORE), "--runroot", str(_RUN / "storage"))
_NO_DAEMONS = ("--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", "runc")
_PODMAN = ("podman", *_WHERE, "--tmpdir", str(_RUN / "libpod"), *_NO_DAEMONS)


def missing() -> list[str]:
    """What this machine lacks for it."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid():
        return [*lacking, "root"]
    namespaces = ("unshare", "--mount", "--pid", "--net", "--fork", "true")
    return lacking + (["namespaces"] if subprocess.run(namespaces, capture_output=True).returncode else [])


def buildah(*arguments: str | Path) -> str:
    """What ``buildah`` prints. Raises CalledProcessError."""
    return _run("buildah", *_WHERE, *arguments)


def podman(*arguments: str | Path) -> str:
    """What ``podman`` prints. Raises CalledProcessError."""
    return _run(*_PODMAN, *arguments)


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def build(scratch: Path) -> None:
    """Make IMAGE of the checkout; what did not change is taken from the last time."""
    _STORE.mkdir(parents=True, exist_ok=True)
    with _alone():
        if BASE not in buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines():
            _make_base(scratch / "base.tar")
        options = ["--build-arg", f"PYTHON_IMAGE={BASE}"]
        for volume in _pip_volumes(scratch / "pip.conf"):
            options += ["--volume", volume]
        how = ("--isolation", "chroot", "--pull-never", "--layers", "--format", "docker", "--tag", IMAGE)
        buildah("build", *how, *options, ROOT)
        buildah("rmi", "--prune")


@contextmanager
def _alone() -> Iterator[None]:
    with open(f"{_STORE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_base(tar: Path) -> None:
    _run("mmdebstrap", "--variant=apt", "--include=python3,python3-venv", "bookworm", tar)
    podman("import", "--change", f"ENV PATH={PATH}", tar, BASE)
    tar.unlink()


def _pip_volumes(conf: Path) -> Iterator[str]:
    """Mounts by which pip in the build has this machine's configuration (in ``conf``), folders and cache."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    told: dict[str, str] = {}
    for line in _run(*pip, "config", "list").splitlines():
        name, _, value = line.partition("=")
        told[name.rpartition(".")[2]] = " ".join(ast.literal_eval(value).split())
    cache = _run(*pip, "cache", "dir").strip()
    Path(cache).mkdir(parents=True, exist_ok=True)
    # Nothing is compiled ahead, which takes long and saves little here. (In a file, pip wants a no to a no-.)
    told |= {"cache-dir": cache, "no-compile": "no"}
    conf.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in told.items()), ""]))
    yield f"{conf}:/etc/pip.conf:ro"
    yield f"{cache}:{cache}"
    words = {word for value in told.values() for word in value.split()}
    indexes = {str(Path(word.removeprefix("file://")).parent) for word in words if word.startswith("file://")}
    for path in sorted(indexes | {word for word in words if word.startswith("/")}):
        if Path(path).exists():
            yield f"{path}:{path}:ro"


@contextmanager
def running(name: str, *arguments: str, port: int) -> Iterator[Served]:
    """A container of IMAGE with as few rights as it can have, on the host's network.

    SIGTERM must end it with 0.
    """
    rights = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges")
    limits = ("--ulimit", "nofile=10000:10000", "--ulimit", "nproc=10000:10000")
    settings = ("--env", "DUOLOGUE_HOST=127.0.0.1", "--env", f"DUOLOGUE_PORT={port}")
    how = ("--rm", "--name", name, "--network", "host", "--no-healthcheck")
    process = subprocess.Popen(
        [*_PODMAN, "run", *how, *rights, *limits, *settings, IMAGE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    served = Served(process)
    try:
        served.wait_ready(120)
        yield served
        assert served.stop() == 0, "\n".join(served.lines)
    finally:
        if process.poll() is None:
            podman("rm", "--force", name)
            process.wait(30)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
