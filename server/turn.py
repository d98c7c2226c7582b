"""TURN: logins that expire, and the configuration of the coturn that accepts them. Pure.

A login is ``EXPIRY:NAME`` with an HMAC of it as its password (draft-uberti-behave-turn-rest-00), so the
TURN server and this one share a secret and nothing else. Who may take a relay decides to whom it may speak:

* callers and the server itself ("both"): to the media servers and to other relays of the same coturn;
* callers only: to the media servers;
* the server only: to any public address, since callers come from anywhere. Nobody else is given a login then.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Literal

from aiortc.rtcicetransport import parse_stun_turn_uri

from server.ice import IceServer

RelayFor = Literal["both", "callers", "server"]

LOGIN_QUOTA = 12
"""Allocations of one login: a browser makes one for each network interface and URL."""
CALL_QUOTA = 8
"""Allocations that a call is reckoned to take, in all."""
LEAST_QUOTA = 64
MAX_BPS = 125_000
"""Bytes a second of one allocation. A call takes 10,000 each way; the rest is for large events."""
FIRST_PORT = 49_160
METRICS_PORT = 9641
CERTIFICATE = "/etc/coturn/fullchain.pem"
KEY = "/etc/coturn/privkey.pem"

EVERYTHING = ("0.0.0.0-255.255.255.255", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
NOT_PUBLIC = (
    "0.0.0.0-0.255.255.255",
    "10.0.0.0-10.255.255.255",
    "100.64.0.0-100.127.255.255",
    "127.0.0.0-127.255.255.255",
    "169.254.0.0-169.254.255.255",
    "172.16.0.0-172.31.255.255",
    "192.0.0.0-192.0.0.255",
    "192.0.2.0-192.0.2.255",
    "192.88.99.0-192.88.99.255",
    "192.168.0.0-192.168.255.255",
    "198.18.0.0-198.19.255.255",
    "198.51.100.0-198.51.100.255",
    "203.0.113.0-203.0.113.255",
    "224.0.0.0-255.255.255.255",
    "::1-1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001::-2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
    "2002::-2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "4000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
)
"""The special-purpose registries of RFC 6890, and what lies outside 2000::/3.

A range that begins with ``::`` would cover IPv4 too; coturn refuses that one address anyway.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """TURN servers that share a secret with this one."""

    urls: tuple[str, ...]
    """As in RFC 7065."""
    secret: str = field(repr=False)
    ttl: int
    """Seconds for which a login works."""
    relay_for: RelayFor = "both"

    @property
    def serves_callers(self) -> bool:
        return self.relay_for != "server"

    @property
    def serves_server(self) -> bool:
        return self.relay_for != "callers"

    def servers(self, name: str, now: float | None = None) -> tuple[IceServer, ...]:
        """The servers, with a new login under ``name``. ``now`` is Unix time."""
        username, credential = login(self.secret, name, (time.time() if now is None else now) + self.ttl)
        return tuple(IceServer(url, username, credential) for url in self.urls)


def login(secret: str, name: str, expires: float) -> tuple[str, str]:
    """User name and password, good until ``expires`` (Unix time)."""
    username = f"{int(expires)}:{name}"
    return username, base64.b64encode(hmac.digest(secret.encode(), username.encode(), sha1)).decode()


def parse_turn_url(url: str) -> tuple[str, int, str]:
    """Host, port and transport (udp, tcp or tls) of a TURN URL without a login.

    :raises ValueError: if it is none, or none that both browsers and aiortc can use.
    """
    uri = parse_stun_turn_uri(url)
    kind = {("turn", "udp"): "udp", ("turn", "tcp"): "tcp", ("turns", "tcp"): "tls"}.get(
        (uri["scheme"], uri.get("transport", ""))
    )
    if kind is None or "@" in url:
        raise ValueError("not a TURN URL")
    return uri["host"], uri["port"], kind


@dataclass(frozen=True, slots=True)
class Coturn:
    """What a configuration needs to know beside the login."""

    turn: Turn
    calls: int
    """At once."""
    peers: tuple[str, ...] = ()
    """Addresses from which the media servers send."""
    relay: tuple[str, ...] = ()
    """Addresses of the TURN server: the public one and, behind a 1:1 NAT, the private one."""
    bind: bool = False
    """To no other address of its machine."""
    certificate: str = CERTIFICATE
    key: str = KEY
    metrics: bool = False
    tls_port: int | None = None
    """Where it listens for TLS on its machine, when a proxy leads there from the URL's port."""


def turnserver_conf(coturn: Coturn, *, secret: bool = False) -> str:
    """``turnserver.conf``. The secret is left out unless it is asked for.

    :raises ValueError: if one coturn cannot serve all the URLs; the message is a sentence.
    """
    lines = [
        "# coturn for Duologue, made by `duologue turn config`.",
        *_listeners(coturn),
        *_relay(coturn),
        "",
        "# Logins that expire, made by Duologue for each call.",
        "fingerprint",
        "use-auth-secret",
        f"static-auth-secret={coturn.turn.secret}"
        if secret
        else "# static-auth-secret is left out: --output FILE writes it, --show-secret shows it.",
        "stale-nonce=600",
        "",
        *_quotas(coturn.calls),
        "",
        *_peers(coturn),
        "no-multicast-peers",
        "no-tcp-relay",
        "",
        "no-cli",
        "no-rfc5780",
        "no-stun-backward-compatibility",
        "response-origin-only-with-rfc5780",
        "no-software-attribute",
        "log-file=stdout",
        "simple-log",
    ]
    if coturn.metrics:
        lines += [
            "",
            "# For builds with Prometheus. Open the port to whoever scrapes, nobody else.",
        ]
        lines += ["prometheus", f"prometheus-port={METRICS_PORT}"]
    return "\n".join(lines) + "\n"


def _listeners(coturn: Coturn) -> Iterator[str]:
    urls = [parse_turn_url(url) for url in coturn.turn.urls]
    kinds = {kind for _, _, kind in urls}
    yield f"realm={_one([host for host, _, _ in urls], 'host')}"
    if kinds & {"udp", "tcp"}:
        yield f"listening-port={_one([port for _, port, kind in urls if kind != 'tls'], 'port without TLS')}"
    yield from (f"no-{kind}" for kind in ("udp", "tcp", "tls") if kind not in kinds)
    if "tls" in kinds:
        port = _one([port for _, port, kind in urls if kind == "tls"], "port for TLS")
        yield f"tls-listening-port={coturn.tls_port or port}"
        yield from (f"cert={coturn.certificate}", f"pkey={coturn.key}", "no-tlsv1", "no-tlsv1_1")
    yield "no-dtls"


def _one(values: Iterable[str | int], what: str) -> str | int:
    different = sorted(set(values))
    if len(different) > 1:
        raise ValueError(f"One coturn has one {what}, but --turn-url names {', '.join(map(str, different))}.")
    return different[0]


def _relay(coturn: Coturn) -> Iterator[str]:
    if coturn.bind:
        yield from (f"listening-ip={coturn.relay[-1]}", f"relay-ip={coturn.relay[-1]}")
        if coturn.tls_port:
            yield "listening-ip=127.0.0.1"
    elif coturn.tls_port and coturn.relay:
        # Else who comes by way of the proxy gets a relay on the address that they came to: 127.0.0.1.
        yield f"relay-ip={coturn.relay[-1]}"
    if len(coturn.relay) > 1:
        yield f"external-ip={'/'.join(coturn.relay)}"
    if coturn.relay and all(":" in address for address in coturn.relay):
        # Clients that do not say which they want, as browsers do not, would get IPv4.
        yield "allocation-default-address-family=ipv6"


def _quotas(calls: int) -> Sequence[str]:
    total = max(LEAST_QUOTA, CALL_QUOTA * calls)
    return (
        f"user-quota={LOGIN_QUOTA}",
        f"total-quota={total}",
        f"max-bps={MAX_BPS}",
        f"min-port={FIRST_PORT}",
        f"max-port={FIRST_PORT + 2 * total - 1}",
    )


def _peers(coturn: Coturn) -> Iterator[str]:
    if not coturn.turn.serves_callers:
        yield "# The server alone takes relays, and callers come from anywhere: public addresses only."
        yield from (f"denied-peer-ip={span}" for span in NOT_PUBLIC)
        return
    yield "# Relay to the media servers only: not to a cloud's metadata, nor to the network behind."
    yield from (f"denied-peer-ip={span}" for span in EVERYTHING)
    yield from (f"allowed-peer-ip={peer}" for peer in coturn.peers)
    if coturn.turn.serves_server:
        yield "# Itself, for a call in which both ends take a relay."
        yield from (f"allowed-peer-ip={address}" for address in coturn.relay)
