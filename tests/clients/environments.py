"""An environment for each client whose dependencies do not go with those of the server.

``python -m tests.clients.environments`` makes them all, and needs nothing but the standard library, so that
it can begin before all else is installed; who wants one meanwhile waits for it.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".clients"
NAMES = ("pipecat", "livekit")


class CannotInstall(Exception):
    """What pip said."""


def environment(name: str) -> Path:
    """The python of an environment with what ``NAME_requirements.txt`` says, made if there is none yet.

    Raises CannotInstall.
    """
    folder = FOLDER / name
    marker, python = folder / "installed", folder / "bin" / "python"
    requirements = HERE / f"{name}_requirements.txt"
    wanted = requirements.read_text() + sys.version
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.is_file() or marker.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            command = [str(python), "-m", "pip", "install", "-q", "-r", str(requirements)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise CannotInstall(f"{name} cannot be installed: {done.stderr[-2000:]}")
            marker.write_text(wanted)
    return python


if __name__ == "__main__":
    for name in NAMES:
        environment(name)
