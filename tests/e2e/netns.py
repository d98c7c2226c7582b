"""A small Internet: a caller and a media server that see a relay, and have no way to each other.

Three network namespaces with a wire from the relay to either end. They hang on processes that end with this
one, so nothing is left behind, and the machine's own network is never touched. The addresses are public ones,
since a relay refuses all others; no packet with them leaves the namespaces.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

CALLER = "5.10.0.2"
SERVER = "5.20.0.2"
RELAY = "5.30.0.1"
OPEN_RELAY = "5.30.0.2"

CANNOT = (
    "This machine does not let the tests make network namespaces, without which nothing is known of calls "
    "over TURN: run them as root (in a container, with CAP_SYS_ADMIN), or allow user namespaces. "
)


class NoNamespaces(Exception):
    """Said loudly: the proof is not to be left out."""


class Host:
    """A namespace: what runs with ``prefix`` in front is inside."""

    def __init__(self, prefix: Sequence[str], pid: int) -> None:
        self.prefix = tuple(prefix)
        self.pid = pid

    def run(self, *command: str) -> str:
        """What ``command`` printed. Raises CalledProcessError."""
        return subprocess.run([*self.prefix, *command], check=True, capture_output=True, text=True).stdout


class Internet:
    def __init__(self, caller: Host, relay: Host, server: Host) -> None:
        self.caller = caller
        self.relay = relay
        self.server = server


@contextmanager
def internet() -> Iterator[Internet]:
    """Raises NoNamespaces."""
    with ExitStack() as stack:
        caller, as_user = _first(stack)
        enter = [*caller.prefix[:3], "--user", "--preserve-credentials"] if as_user else []
        relay, server = (
            stack.enter_context(_namespace([*enter, "unshare", "--net"], as_user)) for _ in range(2)
        )
        _wire(caller, relay, CALLER, "5.10.0.1")
        _wire(server, relay, SERVER, "5.20.0.1")
        for host in (caller, relay, server):
            host.run("ip", "link", "set", "lo", "up")
        for address in (RELAY, OPEN_RELAY):
            relay.run("ip", "address", "add", f"{address}/32", "dev", "lo")
            caller.run("ip", "route", "add", f"{address}/32", "via", "5.10.0.1")
            server.run("ip", "route", "add", f"{address}/32", "via", "5.20.0.1")
        yield Internet(caller, relay, server)


def _first(stack: ExitStack) -> tuple[Host, bool]:
    """A namespace made as root, or as whoever this is in a user namespace; and which of the two."""
    complaints = []
    for as_user in (False, True):
        user = ["--user", "--map-root-user"] if as_user else []
        try:
            return stack.enter_context(_namespace(["unshare", *user, "--net"], as_user)), as_user
        except NoNamespaces as error:
            complaints.append(str(error))
    raise NoNamespaces(CANNOT + " ".join(complaints))


@contextmanager
def _namespace(unshare: Sequence[str], as_user: bool) -> Iterator[Host]:
    holder = subprocess.Popen(
        [*unshare, "sh", "-c", "echo && exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != "\n":
            raise NoNamespaces(holder.communicate()[1].strip())
        user = ["--user", "--preserve-credentials"] if as_user else []
        yield Host(["nsenter", "--target", str(holder.pid), *user, "--net"], holder.pid)
        holder.communicate()


def _wire(end: Host, relay: Host, address: str, gateway: str) -> None:
    name = f"to{end.pid}"
    end.run("ip", "link", "add", "wire", "type", "veth", "peer", "name", name, "netns", str(relay.pid))
    for host, device, its in ((end, "wire", address), (relay, name, gateway)):
        host.run("ip", "address", "add", f"{its}/30", "dev", device)
        host.run("ip", "link", "set", device, "up")
