"""Who imports whom, as docs/architecture.md draws it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ARROWS: dict[str, set[str]] = {
    "units.scope": set(),
    "units.messages": {"units.scope"},
    "units.models": set(),
    "units.observe": {"units.messages"},
    "units.speakable": set(),
    "units.thoughts": set(),
    "units.turns": set(),
    "units.playout": {"units.messages"},
    "units.resample": {"units.messages"},
    "units.realtime": {"units.messages", "units.scope", "units.turns", "units.playout"},
    "units.engines": {"units.messages", "units.scope", "units.models"},
    "units.stages": {
        "units.messages",
        "units.scope",
        "units.engines.base",
        "units.observe",
        "units.resample",
        "units.speakable",
        "units.thoughts",
    },
    "units.config": {"units.engines.base"},
    "units.mcp_client": {"units.realtime"},
    "units.line": {"units.messages", "units.observe", "units.scope", "units.engines.base"},
    "units.session": {
        "units.messages",
        "units.observe",
        "units.scope",
        "units.playout",
        "units.resample",
        "units.realtime",
        "units.unit",
    },
    "units.unit": {
        "units.messages",
        "units.observe",
        "units.scope",
        "units.playout",
        "units.realtime",
        "units.config",
        "units.engines.base",
        "units.line",
        "units.mcp_client",
        "units.session",
        "units.stages",
    },
    "units.pool": {"units.session", "units.unit"},
    "units.build": {
        "units.config",
        "units.engines",
        "units.messages",
        "units.pool",
        "units.realtime",
        "units.stages.vad",
        "units.unit",
    },
    "units": {"units"},
    "server": {"units"},
    "server.__main__": {"units", "server", "benchmarks.cli"},
    "benchmarks": {"units", "server"},
}
"""What a package or module may import of the project, beside its own package. The longest name counts."""

BLOCKS_WAITS_OR_TELLS_THE_TIME = {
    "aiohttp",
    "asyncio",
    "concurrent",
    "datetime",
    "http",
    "io",
    "multiprocessing",
    "os",
    "queue",
    "random",
    "sched",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "urllib.request",
}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("units", "server", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def imported(source: str) -> Iterator[str]:
    """Full names of the modules that ``source`` imports, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module)


def inside(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def home(module: str, table: dict[str, set[str]]) -> str:
    """The longest name in ``table`` that ``module`` is, or is inside of."""
    return max((name for name in table if inside(module, {name})), key=len)


def unlisted(module: str, source: str) -> set[str]:
    """Imports of ``module`` that no arrow allows."""
    owner = home(module, ARROWS)
    ours = {name for name in imported(source) if inside(name, {"units", "server", "benchmarks", "tests"})}
    own = {owner} if owner != "units" or module == "units" else set()
    return {
        name
        for name in ours
        if not inside(name, ARROWS[owner] | own) or (name == "server.app" and module != "server.__main__")
    }


@pytest.mark.parametrize("module", MODULES)
def test_every_import_is_a_listed_arrow(module: str) -> None:
    assert unlisted(module, MODULES[module].read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("module", [name for name in MODULES if inside(name, {"units"}) and name != "units"])
def test_every_module_of_units_has_its_place(module: str) -> None:
    assert home(module, ARROWS) != "units", f"say in ARROWS what {module} may import"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("units.realtime.service", "import units.pool"),
        ("units.stages.llm", "from units.engines import registry"),
        ("units.line", "def f():\n    from server.app import build_app"),
        ("server.health", "from server.app import build_app"),
        ("server.calls", "import benchmarks.cli"),
        ("units.engines.kokoro", "import tests.speech"),
    ],
)
def test_an_arrow_that_is_not_listed_is_found(module: str, source: str) -> None:
    assert unlisted(module, source)


IN_EXTRAS = {"jinja2", "kokoro", "opentelemetry", "torch", "transformers"}
WITH_EXTRAS = {
    "server.spans",
    "server.tracing",
    "units.engines.kokoro",
    "units.engines.transformers_llm",
    "units.engines.whisper",
}


@pytest.mark.parametrize("module", sorted(MODULES.keys() - WITH_EXTRAS))
def test_what_only_extras_bring_is_imported_where_it_is_chosen(module: str) -> None:
    source = MODULES[module].read_text(encoding="utf-8")
    assert not [name for name in imported(source) if inside(name, IN_EXTRAS)]


REALTIME = [name for name in MODULES if inside(name, {"units.realtime", "units.turns"})]


@pytest.mark.parametrize("module", REALTIME)
def test_the_protocol_core_imports_nothing_that_blocks_waits_or_tells_the_time(module: str) -> None:
    names = set(imported(MODULES[module].read_text(encoding="utf-8")))
    assert not {name for name in names if inside(name, BLOCKS_WAITS_OR_TELLS_THE_TIME)}


@pytest.mark.parametrize("module", REALTIME)
def test_the_protocol_core_needs_the_standard_library_and_numpy_only(module: str) -> None:
    names = {name.partition(".")[0] for name in imported(MODULES[module].read_text(encoding="utf-8"))}
    assert names <= {*sys.stdlib_module_names, "units", "numpy", "openai"}


def test_the_protocol_core_is_there_to_be_checked() -> None:
    assert "units.realtime.service" in REALTIME
