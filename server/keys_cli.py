"""``duologue keys add | list | remove``: the keys file at the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from server.keys import Key, KeysError, checked_name, new_key, read_keys, sha256, write_keys
from server.settings_sources import load_settings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_keys_command(subparsers: Subparsers) -> None:
    """Add the command; ``args.run(args)`` does what was asked and returns the exit code."""
    command = subparsers.add_parser("keys", help="make, list and withdraw API keys")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = _action(
        actions, "add", "make a key and print it, this once; a running server takes it at once", _add
    )
    add.add_argument("name", metavar="NAME")
    add.add_argument(
        "--sessions", type=_limit, metavar="N", help="sessions at a time; default: as many as there are units"
    )
    add.add_argument(
        "--per-minute",
        type=_limit,
        metavar="N",
        help="sessions that may begin in a minute; default: the server's --sessions-per-minute",
    )
    _action(actions, "list", "show the names and limits of the keys", _list)
    remove = _action(actions, "remove", "withdraw a key; calls that it began go on", _remove)
    remove.add_argument("name", metavar="NAME")


def _action(
    actions: Subparsers, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    parser.add_argument("--keys-file", type=Path, help="the keys file; default: the server's")
    parser.set_defaults(run=run)
    return parser


def _limit(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _path(args: argparse.Namespace) -> Path:
    """The file that a server started here would use."""
    return args.keys_file or load_settings({}).keys_path


def _add(args: argparse.Namespace) -> int:
    path, name = _path(args), checked_name(args.name)
    keys = read_keys(path)
    if any(key.name == name for key in keys):
        raise KeysError(f"There is a key {name} already; remove it first, or choose another name.")
    secret = new_key()
    write_keys(path, (*keys, Key(name, sha256(secret), args.sessions, args.per_minute)))
    sys.stdout.write(f"{secret}\n")
    sys.stderr.write("This is the only time that the key is shown.\n")
    return 0


def _list(args: argparse.Namespace) -> int:
    path = _path(args)
    rows = [("NAME", "SESSIONS", "PER MINUTE", "SHA-256")]
    rows += [
        (key.name, _shown(key.sessions), _shown(key.per_minute), key.sha256[:12]) for key in read_keys(path)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.write(f"\nin {path}\n")
    return 0


def _remove(args: argparse.Namespace) -> int:
    path = _path(args)
    keys = read_keys(path)
    left = [key for key in keys if key.name != args.name]
    if len(left) == len(keys):
        raise KeysError(f"There is no key {args.name} in {path}.")
    write_keys(path, left)
    return 0


def _shown(limit: int | None) -> str:
    return "-" if limit is None else str(limit)
