"""``duologue models list | fetch | verify``: the model store at the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tqdm import tqdm

from units.models import CATALOGUE, ModelError, ModelStore, default_root

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_models_command(subparsers: Subparsers) -> None:
    """Add the command; ``args.run(args)`` does what was asked and returns the exit code."""
    command = subparsers.add_parser("models", help="list, fetch and verify the models in the model store")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    _action(actions, "list", "show every known model and whether it is there", _list)
    fetch = _action(actions, "fetch", "fetch models; without a name, those a plain start needs", _fetch)
    fetch.add_argument("names", nargs="*", metavar="NAME")
    verify = _action(actions, "verify", "hash models again; without a name, all that are there", _verify)
    verify.add_argument("names", nargs="*", metavar="NAME")


def _action(
    actions: Subparsers, name: str, text: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--models-dir", type=Path, help=f"the model store's folder (default: {default_root()})"
    )
    parser.set_defaults(run=run)
    return parser


def _list(args: argparse.Namespace) -> int:
    store = ModelStore(args.models_dir)
    rows = [("NAME", "SIZE", "LICENCE", "STATE", "USED FOR")]
    rows += [
        (model.name, _megabytes(model.size), model.licence, state, model.purpose)
        for model, state in store.list()
    ]
    _say(*_table(rows), "", f"in {store.root}")
    return 0


def _fetch(args: argparse.Namespace) -> int:
    store = ModelStore(args.models_dir)
    names = args.names or [model.name for model in CATALOGUE.values() if model.default]
    return _each(names, lambda name: fetch_one(store, name))


def fetch_one(store: ModelStore, name: str) -> None:
    """Fetch a model with a progress bar on stderr, unless it is there. Raises ModelError."""
    if store.state(name) == "present":
        _say(f"{name}: present")
        return
    with _bar(name, store.model(name).size, sys.stderr) as progress:
        store.fetch(name, progress)
    _say(f"{name}: fetched")


def _verify(args: argparse.Namespace) -> int:
    store = ModelStore(args.models_dir)
    names = args.names or [model.name for model, state in store.list() if state != "absent"]

    def check(name: str) -> None:
        store.verify(name)
        _say(f"{name}: as it should be")

    return _each(names, check)


def _each(names: Sequence[str], act: Callable[[str], None]) -> int:
    """Do all of them even if one fails. 0 when all went well, 1 otherwise, 130 when interrupted."""
    failed = 0
    for name in names:
        try:
            act(name)
        except ModelError as error:
            _complain(str(error))
            failed = 1
        except KeyboardInterrupt:
            _complain("interrupted; the next fetch goes on from here")
            return 130
    return failed


@contextmanager
def _bar(name: str, size: int, stream: TextIO) -> Iterator[Callable[[int, int], None]]:
    """A progress callback: a bar at a terminal, else a line for every tenth."""
    if not stream.isatty():
        yield _lines(name, stream)
        return
    with tqdm(total=size, desc=name, unit="B", unit_scale=True, file=stream, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


def _lines(name: str, stream: TextIO) -> Callable[[int, int], None]:
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        tenth = 10 * done // total
        if tenth > shown:
            shown = tenth
            stream.write(f"{name}: {10 * tenth} % of {_megabytes(total)}\n")
            stream.flush()

    return show


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index == 1 else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size < 1e8 else f"{size / 1e6:.0f} MB"


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"duologue: {text}\n")
