"""Flags over environment over file over defaults, and one sentence for each thing that is wrong."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

from server.settings import ENV_PREFIX, Settings, is_secret

logger = logging.getLogger(__name__)

DEFAULT_FILE = "duologue.toml"
CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"

LOOKS_LIKE = 0.7
"""Similarity (0 to 1, of difflib) from which one name is taken for a misspelling of another."""


class SettingsError(Exception):
    """A setting is wrong. ``str(error)`` is one sentence a line."""


def load_settings(flags: Mapping[str, Any], config: str | None = None) -> Settings:
    """The settings: ``flags`` (by field name), the environment, the file, the defaults, in this order.

    ``config`` names the file; None: ``DUOLOGUE_CONFIG``, or duologue.toml when there is one here.
    Raises SettingsError.
    """
    path = _config_path(config)
    sources = {
        "flag": dict(flags),
        "environment": _from_environment(),
        "file": _from_file(path) if path else {},
    }
    values = sources["file"] | sources["environment"] | sources["flag"]
    try:
        return Settings(**values)
    except ValidationError as error:
        lines = [_sentence(detail, sources, path) for detail in error.errors(include_url=False)]
        raise SettingsError("\n".join(dict.fromkeys(lines))) from None


def flag_of(name: str) -> str:
    """The command line's spelling of the setting ``name``."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment's spelling of the setting ``name``."""
    return ENV_PREFIX + name.upper()


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` when something among ``known`` looks like ``name``, else a full stop."""
    match = get_close_matches(name, list(known), n=1, cutoff=LOOKS_LIKE)
    return f"; did you mean {match[0]}?" if match else "."


def _config_path(config: str | None) -> Path | None:
    chosen = config or os.environ.get(CONFIG_VARIABLE)
    if chosen:
        return Path(chosen)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def _from_environment() -> dict[str, Any]:
    _check_variables(os.environ)
    return EnvSettingsSource(Settings)()


def _check_variables(environment: Mapping[str, str]) -> None:
    """A misspelt variable is refused; one that resembles nothing may belong to something else."""
    known = ["CONFIG", *map(str.upper, Settings.model_fields)]
    for variable in environment:
        prefix, _, name = variable.upper().partition("_")
        if f"{prefix}_" != ENV_PREFIX or name in known:
            continue
        if match := get_close_matches(name, known, n=1, cutoff=LOOKS_LIKE):
            raise SettingsError(f"There is no setting {variable}; did you mean {ENV_PREFIX}{match[0]}?")
        logger.warning("The environment variable %s is no setting of this server.", variable)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        raw = TomlConfigSettingsSource(Settings, path)() if path.is_file() else None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from error
    if raw is None:
        raise SettingsError(f"There is no settings file {path}.")
    values = {key.replace("-", "_"): value for key, value in raw.items()}
    for key in values:
        if key not in Settings.model_fields:
            raise SettingsError(f"There is no setting {key} in {path}{nearest(key, Settings.model_fields)}")
        if is_secret(key):
            raise SettingsError(f"Keys do not belong in {path}: set {variable_of(key)} in the environment.")
    return values


def _sentence(detail: ErrorDetails, sources: Mapping[str, Mapping[str, Any]], path: Path | None) -> str:
    name = str(detail["loc"][0])
    origin = next((source for source, values in sources.items() if name in values), "flag")
    where = {"flag": flag_of(name), "environment": variable_of(name), "file": f"{name} in {path}"}[origin]
    if is_secret(name):
        return f"{where} {detail['ctx']['error'] if detail['type'] == 'value_error' else 'is not a text'}."
    return f"{where} is {_shown(sources[origin].get(name))}; it {_rule(detail, Settings.model_fields[name])}."


def _shown(value: object) -> str:
    return ", ".join(map(repr, value)) if isinstance(value, list | tuple) else repr(value)


def _rule(detail: ErrorDetails, field: FieldInfo) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    return f"must be {allowed(field)}"


def allowed(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    if get_origin(field.annotation) is Literal:
        return f"one of: {', '.join(get_args(field.annotation))}"
    if field.annotation is bool:
        return "true or false"
    limits = {type(limit).__name__: limit for limit in field.metadata}
    if field.annotation in (int, float):
        number = "a whole number" if field.annotation is int else "a number"
        return f"{number} from {limits['Ge'].ge} to {limits['Le'].le}"
    if "MinLen" in limits:
        return "a text that is not empty"
    if "MaxLen" in limits:
        return f"a text of at most {limits['MaxLen'].max_length} characters"
    if field.annotation in (str, Path | None):
        return "a text"
    return "a list of texts"
