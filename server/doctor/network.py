"""The port, UDP, the addresses that callers are told, and the servers that help them."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Sequence
from urllib.request import urlopen

from aioice import stun
from aioice.ice import get_host_addresses

from server.doctor.finding import Finding
from server.ice import NO_ANSWER, PROBE_TIMEOUT, IceServer, ask
from server.keys import Keys, KeysError
from server.running import CannotListen, address, is_local, listen
from server.settings import Settings
from server.turn import Turn
from server.turn_check import CheckFailed, Unsafe, tried

TIMEOUT_S = 2.0
UNSAFE_FIX = "stop it, and make its configuration anew: duologue turn config"
TURN_FIX = "see its log, ports and clock; turn/README.md tells how to set it up"
OUTSIDE = "set --public-ip to the address that the machine has outside"


def port(settings: Settings) -> Finding:
    """Whether the port is free, or taken by a server of ours."""
    check = f"port {settings.port}"
    try:
        listen(settings.host, settings.port).close()
    except CannotListen as error:
        if _is_served(settings):
            return Finding(check, f"a server is running at {address(settings.host, settings.port)}")
        said, _, fix = str(error).rstrip(".").partition("; ")
        return Finding(check, said, fix or "choose another with --port")
    return Finding(check, f"free on {settings.host}")


def _is_served(settings: Settings) -> bool:
    try:
        with urlopen(f"{address(settings.host, settings.port)}/healthz", timeout=TIMEOUT_S) as response:
            return bool(json.load(response) == {"status": "ok"})
    except (OSError, ValueError):
        return False


def access(settings: Settings) -> Finding:
    """Whether the server would start as far as its keys go, and who may use it then."""
    check = "keys"
    try:
        keys = Keys(settings.keys_path, settings.api_key.get_secret_value())
    except KeysError as error:
        return Finding(check, str(error).rstrip("."), "mend that file, or name another with --keys-file")
    if keys.needed:
        return Finding(check, "clients need one")
    if is_local(settings.host):
        return Finding(check, "none, and only this machine can reach the server")
    if settings.allow_anonymous:
        return Finding(check, "none: anybody who reaches the port may use the server, as you allowed")
    return Finding(check, f"none, and others can reach {settings.host}", "duologue keys add NAME")


def own_addresses() -> list[str]:
    """The addresses of this machine that a call offers to the other side."""
    return [str(found) for found in get_host_addresses(use_ipv4=True, use_ipv6=True)]


def udp(addresses: Sequence[str]) -> Finding:
    """Whether a datagram gets from each address to itself, as media must at the least."""
    if not addresses:
        return Finding("udp", "this machine has no address but loopback", "connect it to a network")
    for host in addresses:
        try:
            _to_itself(host)
        except TimeoutError:
            return Finding("udp", f"what is sent to {host} does not arrive", "let UDP in: see its firewall")
        except OSError as error:
            return Finding(
                "udp", f"no socket on {host}: {error.strerror or error}", "see ulimit -n and firewall"
            )
    return Finding("udp", f"works on {', '.join(addresses)}")


def _to_itself(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as endpoint:
        endpoint.bind((host, 0))
        endpoint.settimeout(TIMEOUT_S)
        endpoint.sendto(b"duologue", endpoint.getsockname())
        endpoint.recv(16)


def public_address(settings: Settings, addresses: Sequence[str], public: bool) -> Finding:
    """Whether callers are told an address they can reach; ``public``: they come from the internet."""
    check = "public address"
    if settings.public_ip:
        told = ipaddress.ip_address(settings.public_ip)
        nowhere = told.is_loopback or told.is_unspecified or told.is_multicast or told.is_link_local
        if not nowhere and (told.is_global or not public):
            return Finding(check, settings.public_ip)
        return Finding(check, f"callers cannot reach {told}", OUTSIDE)
    reachable = [host for host in addresses if ipaddress.ip_address(host).is_global]
    if reachable:
        return Finding(check, f"{', '.join(reachable)}, of this machine")
    relays = settings.turn_url or any(server.url.startswith("turn") for server in settings.ice_servers)
    if public and not relays:
        said = "this machine has private ones only, so callers get no sound"
        return Finding(check, said, f"{OUTSIDE}, or use TURN")
    return Finding(check, "none, which is enough for callers in this network")


async def ice_servers(settings: Settings) -> AsyncIterator[Finding]:
    """Whether each STUN and TURN server gives what a call would ask of it; all are asked at once."""
    turn = settings.turn
    relays = [_turn(server, turn, settings.public_ip) for server in turn.servers("doctor")] if turn else []
    if not settings.ice_servers and not relays:
        yield Finding("ice servers", "none; callers behind strict firewalls need TURN")
    for finding in await asyncio.gather(*map(_ice_server, settings.ice_servers), *relays):
        yield finding


async def _turn(server: IceServer, turn: Turn, public_ip: str) -> Finding:
    """Whether it relays what a call would have it relay, and nothing else."""
    try:
        return Finding(server.url, "; ".join([said async for said in tried(server, turn, public_ip)]))
    except Unsafe as error:
        return Finding(server.url, str(error), UNSAFE_FIX)
    except (CheckFailed, OSError) as error:
        return Finding(server.url, str(error), TURN_FIX)


async def _ice_server(server: IceServer) -> Finding:
    try:
        await ask(server)
    except NO_ANSWER as error:
        return Finding(server.url, *_no_answer(error))
    return Finding(server.url, "answers")


def _no_answer(error: Exception) -> tuple[str, str]:
    """What is wrong, and what to do."""
    if isinstance(error, stun.TransactionFailed):
        code, reason = error.response.attributes.get("ERROR-CODE", (0, "no reason given"))
        if code in (401, 441):
            return "it refuses the login", "use the user and password of its configuration; see both clocks"
        return f"it refuses: {code} {reason}".rstrip(), "see its log"
    if isinstance(error, TimeoutError | stun.TransactionTimeout):
        return (
            f"no answer in {PROBE_TIMEOUT:g} s",
            "start it, and let its ports in (UDP and TCP 3478, TCP 5349)",
        )
    return f"no connection: {error}", "see its name and port, and whether it runs"
