"""What the README shows is what is in the repository, and it runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from tests.units.caller import Caller, said, scripted
from tests.units.conftest import UnitFactory
from units.engines import registry
from units.engines.base import EngineSettings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PARROT = ROOT / "docs" / "examples" / "parrot.py"


def test_the_engine_in_the_readme_is_the_example_and_short() -> None:
    assert PARROT.read_text().rstrip() in README
    assert len([line for line in PARROT.read_text().splitlines() if line.strip()]) <= 20


async def test_the_example_engine_answers(new_unit: UnitFactory) -> None:
    spec = importlib.util.spec_from_file_location("parrot", PARROT)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    parrot = registry.load("llm", EngineSettings("parrot"))
    caller = Caller(new_unit(scripted(llm=parrot)))
    caller.write("hello there", output_modalities=["text"])
    await caller.got("response.done")
    assert said(caller.responses[0]).strip() == "You said: hello there"
    await caller.hang_up()


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
