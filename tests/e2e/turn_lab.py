"""Servers and relays in namespaces with no way between callers and servers but the relays.

The configuration is what ``duologue turn config`` made, the servers are ``duologue serve``, the network is
:mod:`tests.e2e.netns`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from server.__main__ import main
from server.turn import login
from tests.e2e.netns import OPEN_RELAY, RELAY, SERVER, Host, Internet, internet, skipping_without_namespaces
from tests.e2e.remote import Caller, calling, running
from tests.e2e.serving import SCRIPTED, Served, serving

SECRET = "a secret that is not one".replace(" ", "-")
KINDS = ("udp", "tcp", "tls")
BOTH = 8081
SERVER_OVER = {"udp": 8082, "tcp": 8083, "tls": 8084}


def urls(host: str) -> dict[str, str]:
    return {
        "udp": f"turn:{host}:3478?transport=udp",
        "tcp": f"turn:{host}:3478?transport=tcp",
        "tls": f"turns:{host}:443?transport=tcp",
    }


def turn_flags(host: str, *kinds: str, relay_for: str) -> list[str]:
    return ["--turn-for", relay_for, *(f"--turn-url={urls(host)[kind]}" for kind in kinds)]


class Lab:
    """Everything that runs, and the ways to use it."""

    caller: Caller
    served: dict[int, Served]
    """By port."""

    def __init__(self, net: Internet, folder: Path) -> None:
        self.net = net
        self.folder = folder
        self.certificate = str(folder / "relay.pem")
        self.key = str(folder / "relay.key")
        self.environment = {
            **os.environ,
            "DUOLOGUE_TURN_SECRET": SECRET,
            "SSL_CERT_FILE": self.certificate,
            "PYTHONUNBUFFERED": "1",
        }

    def duologue(self, host: Host, *arguments: str) -> str:
        return self.python(host, "server", *arguments)

    def python(self, host: Host, *arguments: str) -> str:
        done = subprocess.run(
            [*host.prefix, sys.executable, "-m", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def make_certificate(self) -> None:
        request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=relay"
        names = f"subjectAltName=IP:{RELAY},IP:{OPEN_RELAY}"
        subprocess.run(
            [*request.split(), "-addext", names, "-keyout", self.key, "-out", self.certificate],
            check=True,
            capture_output=True,
        )

    @contextlib.contextmanager
    def coturn(self, address: str, relay_for: str, *more: str) -> Iterator[None]:
        """Runs in the middle, as configured by the command, with ``more`` lines."""
        path = self.folder / f"{relay_for}.conf"
        made = main(
            [
                *("turn", "config", "--output", str(path), "--relay-ip", address, "--peer", SERVER),
                *("--cert", self.certificate, "--pkey", self.key),
                *turn_flags(address, *KINDS, relay_for=relay_for),
            ]
        )
        assert made == 0
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in (*more, f"pidfile={self.folder / relay_for}.pid"))
        command = [*self.net.relay.prefix, "stdbuf", "--output=L", "turnserver", "-c", str(path)]
        with running(command, "Total General servers"):
            yield

    def server(self, port: int, *flags: str) -> contextlib.AbstractContextManager[Served]:
        return serving(
            *(
                "--host",
                SERVER,
                "--allow-anonymous",
                "--allow-origin",
                web(port),
                "--port",
                str(port),
                *SCRIPTED,
                *flags,
            ),
            prefix=self.net.server.prefix,
            environment=self.environment,
        )

    def login(self, ttl: float, secret: str = SECRET) -> dict[str, Any]:
        """For the TURN server that callers use. Each has a quota of its own."""
        username, credential = login(secret, token_hex(8), time.time() + ttl)
        return {"urls": urls(RELAY)["udp"], "username": username, "credential": credential}


@contextlib.contextmanager
def turn_lab(folder: Path, relay: Sequence[str] = (), server: Sequence[str] = ()) -> Iterator[Lab]:
    """Everything, running; with lines ``relay`` for both relays and flags ``server`` for all servers.

    Without namespaces the test is skipped.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.ExitStack() as stack,
        ThreadPoolExecutor() as threads,
    ):
        with skipping_without_namespaces():
            net = stack.enter_context(internet())
        lab = Lab(net, folder)
        lab.make_certificate()
        patch.setenv("DUOLOGUE_TURN_SECRET", SECRET)
        relays = [lab.coturn(RELAY, "both", *relay), lab.coturn(OPEN_RELAY, "server", *relay)]
        list(threads.map(stack.enter_context, relays))
        lab.caller = stack.enter_context(calling(net.caller.prefix, lab.environment))
        flags = {BOTH: turn_flags(RELAY, *KINDS, relay_for="both")}
        flags |= {
            port: turn_flags(OPEN_RELAY, kind, relay_for="server") for kind, port in SERVER_OVER.items()
        }
        servers = [lab.server(port, *own, *server) for port, own in flags.items()]
        lab.served = dict(zip(flags, threads.map(stack.enter_context, servers), strict=True))
        ways = [f"{port}=http://{SERVER}:{port}" for port in flags]
        proxy = [*lab.net.relay.prefix, sys.executable, "-m", "tests.e2e.forwarding", *ways]
        stack.enter_context(running(proxy, "ready"))
        yield lab


def web(port: int) -> str:
    """Where callers find that server."""
    return f"http://{RELAY}:{port}"
