"""docs/configuration.md from the settings: ``python -m server.settings_docs > docs/configuration.md``."""

from __future__ import annotations

import sys
from itertools import groupby

from server.settings import Settings, engine_kind, group_of, is_secret
from server.settings_sources import CONFIG_VARIABLE, DEFAULT_FILE, allowed, flag_of, variable_of
from units.engines.registry import BUILT_IN

_HEAD = f"""\
# Configuration

A setting is taken from the first place that has it: a flag of `duologue serve`, the environment, a
settings file, its default. The file is the one named by `--config` or `{CONFIG_VARIABLE}`, or
`{DEFAULT_FILE}` in the folder the server is started in. It is TOML, with the names below as keys:

```toml
port = 8443
num_pipelines = 8
llm_backend = "chat-completions"
llm_base_url = "http://localhost:11434/v1"
llm_model = "qwen3:4b"
ice_server = ["stun:stun.example.org:3478"]
```

Flags may be written with underscores too (`--num_pipelines`). Keys come from the environment only. In
the environment a list is separated by commas, and an empty variable counts as not set.

This page is made from the declarations in `server/settings.py` by `python -m server.settings_docs`.
"""


def render() -> str:
    """The page, in Markdown."""
    parts = [_HEAD]
    for heading, names in groupby(Settings.model_fields, group_of):
        rows = [
            f"\n## {heading}\n",
            "| setting | flag and variable | default | meaning |",
            "|---|---|---|---|",
        ]
        parts.append("\n".join([*rows, *map(_row, names)]) + "\n")
    return "".join(parts)


def _row(name: str) -> str:
    spellings = [variable_of(name)] if is_secret(name) else [flag_of(name), variable_of(name)]
    places = "<br>".join(f"`{spelling}`" for spelling in spellings)
    meaning = f"{Settings.model_fields[name].description}{_choices(name)}".replace("|", "\\|")
    return f"| `{name}` | {places} | {_default(name)} | {meaning} |"


def _choices(name: str) -> str:
    field, kind = Settings.model_fields[name], engine_kind(name)
    if kind in BUILT_IN:
        return f" One of: {', '.join(sorted(BUILT_IN[kind]))}, or one that another package brings."
    return f" {allowed(field).capitalize()}." if field.annotation in (int, float) else ""


def _default(name: str) -> str:
    default = Settings.model_fields[name].default
    if is_secret(name) or default in ("", (), None):
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
