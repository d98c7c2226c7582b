"""Command line flags made from the settings, and a parser whose errors are one sentence."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NoReturn

from server.settings import Settings, engine_kind, group_of, is_secret
from server.settings_sources import DEFAULT_FILE, allowed, flag_of, nearest, variable_of
from units.engines.registry import KINDS, available


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence on stderr and exits with code 2."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Formatter, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in the base, but the innermost parser refuses what it does not know, and so knows best."""
        namespace, rest = super().parse_known_args(args, namespace)
        if rest:
            self.refuse(rest)
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def flags(self) -> list[str]:
        """The options it knows."""
        return list(self._option_string_actions)

    def refuse(self, arguments: Sequence[str]) -> NoReturn:
        """Exit over ``arguments``, which nothing took."""
        flag = arguments[0].partition("=")[0]
        name = flag.lstrip("-").replace("-", "_")
        if name in Settings.model_fields and is_secret(name):
            message = (
                f"{flag} is no flag, since others could read it: set {variable_of(name)} in the environment"
            )
            self.exit(2, f"{self.prog}: {message}.\n")
        what = "option" if flag.startswith("-") else "argument"
        self.exit(2, f"{self.prog}: there is no {what} {flag}{nearest(flag, self.flags())}\n")


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


def add_settings_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting but the keys, under the headings of the settings."""
    parser.add_argument(
        "--config", metavar="FILE", help=f"settings in TOML; default: {DEFAULT_FILE} in this folder, if any"
    )
    for heading, names in groupby(Settings.model_fields, group_of):
        group = parser.add_argument_group(heading)
        for name in names:
            if not is_secret(name):
                _add_flag(group, name)


def given_flags(namespace: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given on the command line, by field name."""
    return {name: value for name, value in vars(namespace).items() if name in Settings.model_fields}


def hyphenated(arguments: Sequence[str]) -> list[str]:
    """``--num_pipelines`` as ``--num-pipelines``; values stay what they are."""
    return [_hyphenated(argument) if argument.startswith("--") else argument for argument in arguments]


def _hyphenated(argument: str) -> str:
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


def _add_flag(group: Any, name: str) -> None:
    field = Settings.model_fields[name]
    help_text = f"{field.description}{_choices(name)}{_default(name)}".replace("%", "%%")
    options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": help_text}
    if field.annotation is bool:
        options["action"] = argparse.BooleanOptionalAction
    else:
        options["metavar"] = _metavar(name)
        options["action"] = "append" if isinstance(field.default, tuple) else "store"
    group.add_argument(flag_of(name), **options)


def _choices(name: str) -> str:
    kind = engine_kind(name)
    return f" One of: {', '.join(available(kind))}." if kind in KINDS else ""


def _default(name: str) -> str:
    default = Settings.model_fields[name].default
    if name == "instructions" or default in ("", (), None):
        return ""
    word = ("off", "on")[default] if isinstance(default, bool) else default
    return f" Default: {word}."


def _metavar(name: str) -> str:
    field = Settings.model_fields[name]
    choices = allowed(field)
    if choices.startswith("one of: "):
        return "{" + choices.removeprefix("one of: ").replace(", ", ",") + "}"
    if field.annotation in (int, float):
        return "N"
    return {"models_dir": "DIR", "instructions": "TEXT", "language": "CODE"}.get(
        name, name.rpartition("_")[2].upper()
    )
