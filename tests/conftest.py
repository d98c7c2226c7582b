"""Fixtures that several folders of tests share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from units.models.store import ModelStore

_ALL_E2E = re.compile(r"^pytestmark = \[?pytest\.mark\.e2e\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast part does not import what only the other needs, such as torch and browsers."""
    if config.option.markexpr != "not e2e" or collection_path.suffix != ".py":
        return None
    return bool(_ALL_E2E.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.fixture(scope="session", autouse=True)
def _nobodys_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """API keys of whoever runs the tests must not close the doors of the servers in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("DUOLOGUE_API_KEY", raising=False)
        yield


@pytest.fixture(scope="session")
def model() -> Callable[[str], Path]:
    """Gives the folder of a model of the store by its name, fetched first if it is not there."""
    return ModelStore().fetch
