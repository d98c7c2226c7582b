"""Network namespaces and wires between them.

They hang on processes that end with this one, so nothing is left behind, and the machine's own network is
never touched. :func:`internet` is a small one: a caller and a media server that see a relay, and have no way
to each other. Addresses are public ones, since a relay refuses all others; no packet with them leaves the
namespaces.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

CALLER = "5.10.0.2"
SERVER = "5.20.0.2"
RELAY = "5.30.0.1"
OPEN_RELAY = "5.30.0.2"

CANNOT = (
    "This machine does not let the tests make network namespaces, without which nothing is known of calls "
    "between networks: run them as root (in a container, with CAP_SYS_ADMIN), or allow user namespaces. "
)


class NoNamespaces(Exception):
    """Said loudly: the proof is not to be left out."""


@contextmanager
def skipping_without_namespaces() -> Iterator[None]:
    """For the making of them; with NEEDS_NAMESPACES their absence is a failure."""
    try:
        yield
    except (NoNamespaces, subprocess.CalledProcessError) as error:
        if "NEEDS_NAMESPACES" in os.environ:
            raise
        pytest.skip(str(error))


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
def namespaces(count: int) -> Iterator[list[Host]]:
    """So many namespaces, each with nothing but its loopback. Raises NoNamespaces."""
    with ExitStack() as stack:
        first, as_user = _first(stack)
        enter = [*first.prefix[:3], "--user", "--preserve-credentials"] if as_user else []
        others = [
            stack.enter_context(_namespace([*enter, "unshare", "--net"], as_user)) for _ in range(count - 1)
        ]
        for host in (first, *others):
            host.run("ip", "link", "set", "lo", "up")
        yield [first, *others]


def route(host: Host, *words: str) -> None:
    """``ip route add``, of the version of the first address in ``words``."""
    version = "-6" if any(":" in word for word in words) else "-4"
    host.run("ip", version, "route", "add", *words)


@contextmanager
def internet() -> Iterator[Internet]:
    """Raises NoNamespaces."""
    with namespaces(3) as (caller, relay, server):
        wire(caller, relay, [f"{CALLER}/30"], ["5.10.0.1/30"])
        wire(server, relay, [f"{SERVER}/30"], ["5.20.0.1/30"])
        for address in (RELAY, OPEN_RELAY):
            relay.run("ip", "address", "add", f"{address}/32", "dev", "lo")
            route(caller, f"{address}/32", "via", "5.10.0.1")
            route(server, f"{address}/32", "via", "5.20.0.1")
        yield Internet(caller, relay, server)


def wire(end: Host, other: Host, addresses: Sequence[str], others: Sequence[str], mtu: int = 1500) -> None:
    """Between two hosts, with the addresses (and prefix lengths) of either."""
    name, its = f"to{other.pid}", f"to{end.pid}"
    end.run("ip", "link", "add", name, "type", "veth", "peer", "name", its, "netns", str(other.pid))
    for host, device, own in ((end, name, addresses), (other, its, others)):
        host.run("ip", "link", "set", device, "mtu", str(mtu), "up")
        for address in own:
            # An IPv6 address is else of no use until nobody has objected to it for a second.
            nodad = ["nodad"] if ":" in address else []
            host.run("ip", "address", "add", address, "dev", device, *nodad)


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
