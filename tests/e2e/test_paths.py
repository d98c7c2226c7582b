"""Calls over what lies between a caller and the server: IPv6, several networks, narrow paths, a 1:1 NAT.

Everything runs for real, between the namespaces of :class:`Lab`::

    phone   (IPv6 only) --1280 bytes--+
    laptop  (IPv4 only) --1280 bytes--+-- router --+-- server -- neighbour
                                                   +--(NAT)-- inside
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from server.__main__ import main
from server.turn import login
from tests.e2e.netns import Host, NoNamespaces, namespaces, route, skipping_without_namespaces, wire
from tests.e2e.remote import Caller, calling, running
from tests.e2e.serving import SCRIPTED, serving
from units.engines.scripted import TONE_HZ

pytestmark = pytest.mark.e2e

MTU = 1280
"""Bytes of an IP packet: what every IPv6 path takes, and no more."""
LARGE = "All work and no play makes a dull call. " * 2500
"""Instructions of 100 kB. They travel to the server, and back in ``session.updated``."""
SOON_S = 2.0
"""From the offer to the first event. A path that has to be given up first takes five seconds or more."""
PORT = 8080
MEDIA_PORTS = range(50_000, 50_010)
PUBLIC, PRIVATE = "5.30.0.1", "10.0.0.2"
RELAY, RELAY_NAME = "2a00:30::1", "relay.test"
OPEN_RELAY, OPEN_RELAY_NAME = "2a00:30::2", "open-relay.test"
TURN_URL, OPEN_TURN_URL = (f"turn:{name}:3478?transport=udp" for name in (RELAY_NAME, OPEN_RELAY_NAME))
SERVER = "2a00:20::2"
SECRET = "no-secret-to-speak-of"
LOOK_UP = 'mount --bind "$0" /etc/hosts && exec "$@"'


class Lab:
    """The hosts, and the calls that are made between them, all at once."""

    stranger: Caller
    """Who has no IPv4."""

    def __init__(self, hosts: list[Host]) -> None:
        self.phone, self.laptop, self.router, self.server, self.neighbour, self.inside = hosts
        self.calls: dict[str, Future[dict[str, Any]]] = {}
        self.sizes: dict[str, dict[str, int]] = {}

    def connect(self) -> None:
        wire(self.phone, self.router, ["2a00:10::2/64"], ["2a00:10::1/64"], MTU)
        wire(self.laptop, self.router, ["5.10.0.2/24"], ["5.10.0.1/24"], MTU)
        wire(self.server, self.router, ["5.20.0.2/24", "2a00:20::2/64"], ["5.20.0.1/24", "2a00:20::1/64"])
        wire(self.inside, self.router, [f"{PRIVATE}/24"], ["10.0.0.1/24"])
        wire(self.neighbour, self.server, ["5.40.0.2/24"], ["5.40.0.1/24"])
        self._lead_nowhere()
        for host, gateways in (
            (self.phone, ["2a00:10::1"]),
            (self.laptop, ["5.10.0.1"]),
            (self.server, ["5.20.0.1", "2a00:20::1"]),
            (self.inside, ["10.0.0.1"]),
        ):
            for gateway in gateways:
                route(host, "default", "via", gateway)
        self._forward()

    def _lead_nowhere(self) -> None:
        """The server has an address in one more network, in which nobody is."""
        self.server.run("ip", "link", "add", "nowhere", "type", "veth", "peer", "name", "nobody")
        for device in ("nowhere", "nobody"):
            self.server.run("ip", "link", "set", device, "up")
        self.server.run("ip", "address", "add", "5.50.0.1/24", "dev", "nowhere")

    def _forward(self) -> None:
        """What the router does not know is lost without a word; only the NAT leads inside."""
        for switch in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            self.router.run("sh", "-c", f"echo 1 >/proc/sys/net/{switch}")
        for relay in (RELAY, OPEN_RELAY):
            self.router.run("ip", "address", "add", f"{relay}/128", "dev", "lo")
        route(self.router, "blackhole", "default")
        route(self.laptop, "unreachable", "10.0.0.0/8")
        nat = ("iptables", "-t", "nat", "-A")
        udp, tcp = (
            ("-p", "udp", "--dport", f"{MEDIA_PORTS[0]}:{MEDIA_PORTS[-1]}"),
            ("-p", "tcp", "--dport", str(PORT)),
        )
        for what in (udp, tcp):
            self.router.run(*nat, "PREROUTING", "-d", PUBLIC, *what, "-j", "DNAT", "--to", PRIVATE)
        self.router.run(*nat, "POSTROUTING", "-s", PRIVATE, "-j", "SNAT", "--to", PUBLIC)

    def serving(self, host: Host, *flags: str) -> contextlib.AbstractContextManager[Any]:
        return serving("--allow-anonymous", "--port", str(PORT), *SCRIPTED, *flags, prefix=host.prefix)

    @contextlib.contextmanager
    def relaying(self, folder: Path, relay: str, url: str, relay_for: str) -> Iterator[None]:
        """A coturn on the router that knows of nothing but IPv6."""
        path = folder / f"{relay_for}.conf"
        flags = ("--relay-ip", relay, "--peer", SERVER, "--turn-url", url, "--turn-for", relay_for)
        assert main(["turn", "config", "--output", str(path), *flags]) == 0
        with path.open("a") as file:
            file.write(f"pidfile={folder / relay_for}.pid\n")
        command = [*self.router.prefix, "stdbuf", "--output=L", "turnserver", "-c", str(path)]
        with running(command, "Total General servers"):
            yield

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Look at each packet that passes the router."""
        process = subprocess.Popen(
            [*self.router.prefix, sys.executable, "-m", "tests.e2e.sizes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
            self.sizes = json.loads(process.communicate()[0])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("paths")
    (folder / "hosts").write_text(f"{RELAY} {RELAY_NAME}\n{OPEN_RELAY} {OPEN_RELAY_NAME}\n")
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.ExitStack() as stack,
        ThreadPoolExecutor() as threads,
    ):
        patch.setenv("DUOLOGUE_TURN_SECRET", SECRET)
        with skipping_without_namespaces():
            if shutil.which("iptables") is None:
                raise NoNamespaces("There is no iptables, without which there is no NAT.")
            lab = Lab(stack.enter_context(namespaces(6)))
            lab.connect()
        phone_knows = [*lab.phone.prefix, "unshare", "--mount", "sh", "-c", LOOK_UP, str(folder / "hosts")]
        hosts = (lab.laptop.prefix, lab.neighbour.prefix, phone_knows, phone_knows, lab.laptop.prefix)
        running_callers = [threads.submit(stack.enter_context, calling(prefix)) for prefix in hosts]
        ports = f"{MEDIA_PORTS[0]}-{MEDIA_PORTS[-1]}"
        others = [
            lab.serving(lab.server, "--host", "::"),
            lab.serving(lab.inside, "--host", PRIVATE, "--public-ip", PUBLIC, "--udp-ports", ports),
            lab.relaying(folder, RELAY, TURN_URL, "both"),
            lab.relaying(folder, OPEN_RELAY, OPEN_TURN_URL, "server"),
        ]
        list(threads.map(stack.enter_context, others))
        laptop, neighbour, phone, relayed_phone, guest = (x.result() for x in running_callers)
        lab.stranger = relayed_phone
        relay = dict(zip(("username", "credential"), login(SECRET, "phone", time.time() + 60), strict=True))
        calls: dict[str, Callable[[], dict[str, Any]]] = {
            "laptop": lambda: laptop(
                "call", url=f"http://5.20.0.2:{PORT}", ice_servers=[], instructions=LARGE
            ),
            "phone": lambda: phone(
                "call", url=f"http://[2a00:20::2]:{PORT}", ice_servers=[], instructions=LARGE
            ),
            "neighbour": lambda: neighbour("call", url=f"http://5.40.0.1:{PORT}", ice_servers=[]),
            "relayed phone": lambda: relayed_phone(
                "call",
                url=f"http://[2a00:20::2]:{PORT}",
                ice_servers=[{"urls": TURN_URL, **relay}],
                relayed=True,
                instructions=LARGE,
            ),
            "guest": lambda: guest("hidden_call", url=f"http://{PUBLIC}:{PORT}"),
        }
        with lab.measuring():
            lab.calls = {name: threads.submit(call) for name, call in calls.items()}
            for call in lab.calls.values():
                call.exception()
        yield lab


def whole(lab: Lab, name: str) -> dict[str, Any]:
    """A call in which each side heard the other and saw its events."""
    call = lab.calls[name].result()
    completed = "conversation.item.input_audio_transcription.completed"
    assert {"session.created", "session.updated", completed, "response.done"} <= set(call["types"])
    assert abs(call["hertz"] - TONE_HZ) < 2
    return call


@pytest.mark.parametrize("name", ["laptop", "phone", "neighbour"])
def test_a_server_in_several_networks_is_reached_from_each_without_delay(lab: Lab, name: str) -> None:
    call = whole(lab, name)
    assert set(call["announced"]) == {"5.20.0.2", "5.40.0.1", "5.50.0.1", "2a00:20::2"}
    assert call["pair"] == ["host", "host"]
    assert call["took"] < SOON_S


def test_a_caller_without_ipv4_talks_over_a_relay_without_ipv4(lab: Lab) -> None:
    assert whole(lab, "relayed phone")["pair"] == ["relay", "host"]


NOT_PUBLIC = {
    "loopback": "::1",
    "any": "::",
    "IPv4 in IPv6": "::ffff:127.0.0.1",
    "IPv4 by NAT64": "64:ff9b::a9fe:a9fe",
    "IPv4 by 6to4": "2002:7f00:1::1",
    "unique local": "fc00::1",
    "unique local too": "fd12:3456:789a::1",
    "link-local": "fe80::1",
    "site-local": "fec0::1",
    "documentation": "2001:db8::1",
    "multicast": "ff02::1",
}


@pytest.mark.parametrize(
    ("url", "others"), [(TURN_URL, {SERVER: 0, "2a00:20::1": 403}), (OPEN_TURN_URL, {"2a00:20::1": 0})]
)
def test_a_relay_leads_to_no_address_of_ipv6_that_is_not_public(
    lab: Lab, url: str, others: dict[str, int]
) -> None:
    username, credential = login(SECRET, "stranger", time.time() + 60)
    server = {"urls": url, "username": username, "credential": credential}
    refused = dict.fromkeys(NOT_PUBLIC.values(), 403)
    assert lab.stranger("peers", server=server, addresses=[*others, *refused]) == others | refused


@pytest.mark.parametrize("name", ["laptop", "phone", "relayed phone"])
def test_large_events_pass_a_narrow_path_both_ways(lab: Lab, name: str) -> None:
    assert whole(lab, name)["kept_instructions"]


def test_no_packet_is_too_large_for_a_narrow_path_nor_in_pieces(lab: Lab) -> None:
    assert min(lab.sizes["packets"].values()) > 200
    assert max(lab.sizes["largest"].values()) <= MTU
    assert lab.sizes["fragments"] == {"4": 0, "6": 0}


def test_a_server_behind_a_nat_is_reached_at_its_public_address_and_the_ports_it_keeps_to(lab: Lab) -> None:
    assert set(whole(lab, "guest")["announced"]) == {PUBLIC}
