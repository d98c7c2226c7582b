"""``duologue turn config | check``: coturn's configuration from the server's settings, and trying it out."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from server.flags import add_settings_flags, given_flags
from server.ice import IceServer
from server.settings import Settings
from server.settings_sources import SettingsError, load_settings
from server.turn import CERTIFICATE, KEY, Coturn, Turn, parse_turn_url, turnserver_conf
from server.turn_check import CheckFailed, Unsafe, tried


def add_turn_command(commands: Any) -> None:
    """Add the command; ``args.run(args)`` does what was asked and returns the exit code."""
    text = "configure and check a TURN server (turn/README.md)"
    actions = commands.add_parser("turn", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    config = actions.add_parser(
        "config", help="make turnserver.conf", description="Make coturn's configuration from the settings."
    )
    config.add_argument(
        "--output", type=Path, metavar="FILE", help="write it there, secret included, mode 0600"
    )
    config.add_argument("--show-secret", action="store_true", help="print the secret too")
    config.add_argument(
        "--peer",
        action="append",
        default=[],
        type=_address,
        metavar="ADDRESS",
        help="address from which a media server sends; repeat for several. Default: --public-ip",
    )
    config.add_argument(
        "--relay-ip",
        type=_relay_ip,
        metavar="PUBLIC[/PRIVATE]",
        help="address of the TURN server, which then uses no other. Default: what its name resolves to",
    )
    config.add_argument("--cert", default=CERTIFICATE, metavar="FILE", help="default: %(default)s")
    config.add_argument("--pkey", default=KEY, metavar="FILE", help="default: %(default)s")
    config.add_argument(
        "--tls-port",
        type=int,
        metavar="PORT",
        help="where coturn listens for TLS, when a proxy on its machine leads there from the URL's port",
    )
    config.add_argument("--metrics", action="store_true", help="Prometheus metrics, in builds that have them")
    check = actions.add_parser(
        "check",
        help="allocate, send a packet through and back",
        description="Try each --turn-url as a call would, from the machine of the media server.",
    )
    for parser, run in ((config, _config), (check, _check)):
        parser.set_defaults(run=run)
        add_settings_flags(parser)


def _config(args: argparse.Namespace) -> int:
    settings, turn = _settings(args)
    coturn = Coturn(
        turn,
        settings.num_pipelines,
        _peers(args.peer, settings, turn),
        args.relay_ip or _resolved(turn),
        args.relay_ip is not None,
        args.cert,
        args.pkey,
        args.metrics,
        args.tls_port,
    )
    try:
        text = turnserver_conf(coturn, secret=args.show_secret or args.output is not None)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    if args.output is None:
        sys.stdout.write(text)
    else:
        _write(args.output, text)
        _say(f"Wrote {args.output}: it holds the secret, so let only coturn's user read it.")
    return 0


def _check(args: argparse.Namespace) -> int:
    settings, turn = _settings(args)
    return asyncio.run(_check_all(settings, turn))


async def _check_all(settings: Settings, turn: Turn) -> int:
    """0 if every server does what calls need and nothing else."""
    results = [await _check_one(server, turn, settings.public_ip) for server in turn.servers("check")]
    return 0 if all(results) else 1


async def _check_one(server: IceServer, turn: Turn, public_ip: str) -> bool:
    try:
        async for said in tried(server, turn, public_ip):
            _say(f"{server.url}: {said}")
    except (CheckFailed, OSError) as error:
        _say(f"{server.url}: {'UNSAFE' if isinstance(error, Unsafe) else 'FAILED'}: {error}")
        return False
    return True


def _settings(args: argparse.Namespace) -> tuple[Settings, Turn]:
    settings = load_settings(given_flags(args), args.config)
    if settings.turn is None:
        raise SettingsError("There is no TURN server to speak of: name it with --turn-url.")
    return settings, settings.turn


def _peers(given: Sequence[str], settings: Settings, turn: Turn) -> tuple[str, ...]:
    if not given and not settings.public_ip and turn.serves_callers:
        raise SettingsError(
            "The relay may speak to the media servers only: say where they are, with --peer or --public-ip."
        )
    return tuple(given) or ((settings.public_ip,) if settings.public_ip else ())


def _resolved(turn: Turn) -> tuple[str, ...]:
    host = parse_turn_url(turn.urls[0])[0]
    try:
        return (socket.gethostbyname(host),)
    except (OSError, UnicodeError):
        raise SettingsError(f"There is no address of {host} yet: give it with --relay-ip.") from None


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address") from None


def _relay_ip(text: str) -> tuple[str, ...]:
    public, slash, private = text.partition("/")
    return (_address(public), _address(private)) if slash else (_address(public),)


def _write(path: Path, text: str) -> None:
    try:
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}.") from None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
