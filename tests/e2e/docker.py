"""The few commands of ``docker compose`` that deploy/update gives, carried out by processes on this machine.

A service is a server with scripted engines, at the port in its name's variable; the proxy is there already.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.serving import SCRIPTED

ROOT = Path(__file__).resolve().parents[2]
PORTS = {"duologue": "HERE", "next": "NEXT"}


def main(words: list[str]) -> int:
    """Do what ``docker`` with these arguments does."""
    if "exec" in words:
        return reload(words)
    service = words[-1]
    if "rm" in words or "up" in words:
        stop(service)
    if "up" in words and service != os.environ.get("BROKEN"):
        start(service)
    return 0


def reload(words: list[str]) -> int:
    name, _, value = words[words.index("-e") + 1].partition("=")
    command = words[words.index("caddy") + 1 :]
    command = [str(ROOT / "deploy/caddy/Caddyfile") if "/" in word else word for word in command]
    caddy = Path(sys.executable).parent / command[0]
    return subprocess.run([caddy, *command[1:]], env={**os.environ, name: value}, check=False).returncode


def start(service: str) -> None:
    serve = ("-m", "server", "serve", "--port", os.environ[PORTS[service]], *SCRIPTED)
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *serve], cwd=ROOT, stdout=quiet, stderr=quiet)
    pid_file(service).write_text(str(process.pid))


def stop(service: str) -> None:
    """End the service, if it runs, and wait until its port is free."""
    if pid_file(service).exists():
        pid = int(pid_file(service).read_text())
        pid_file(service).unlink()
        ended = os.pidfd_open(pid)
        signal.pidfd_send_signal(ended, signal.SIGTERM)
        select.select([ended], [], [])


def pid_file(service: str) -> Path:
    return Path(os.environ["SERVICES"]) / f"{service}.pid"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
