"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.protocol.tap import Tap
from tests.protocol.tapped import PROBLEMS
from units.models.store import ModelStore

_ALL_E2E = re.compile(r"^pytestmark = \[?pytest\.mark\.e2e\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast part does not import what only the other needs, such as torch and browsers."""
    if config.option.markexpr != "not e2e" or collection_path.suffix != ".py":
        return None
    return bool(_ALL_E2E.search(collection_path.read_text(encoding="utf-8"))) or None


_LAST = {"test_container.py": 1, "test_conversation.py": 2}
"""script/test builds the image meanwhile; and real models want the processors for themselves."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _LAST.get(item.path.name, 0))


@pytest.fixture(scope="session", autouse=True)
def _nobodys_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """API keys of whoever runs the tests must not close the doors of the servers in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("DUOLOGUE_API_KEY", raising=False)
        yield


@pytest.fixture(autouse=True)
def _no_long_good_byes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions in this process that stop wait for nobody's jitter buffer."""
    monkeypatch.setattr("units.session.LAST_WORDS_S", 0.05)


@pytest.fixture(scope="session")
def model() -> Callable[[str], Path]:
    """Gives the folder of a model of the store by its name, fetched first if it is not there."""
    return ModelStore().fetch


@pytest.fixture(scope="session", autouse=True)
def _problems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], list[str]]]:
    """Gives what was wrong with server events since it was last asked, also in processes of servers."""
    found: list[str] = []
    file = tmp_path_factory.mktemp("protocol") / "problems"
    file.touch()
    read = 0

    def since() -> list[str]:
        nonlocal read
        news, found[:] = [*found, *file.read_text(encoding="utf-8").splitlines()[read:]], []
        read = len(file.read_text(encoding="utf-8").splitlines())
        return news

    os.environ[PROBLEMS] = str(file)
    with Tap(found.append).open():
        yield since
    del os.environ[PROBLEMS]
    assert since() == []


@pytest.fixture(autouse=True)
def _every_event_keeps_to_the_protocol(
    request: pytest.FixtureRequest, _problems: Callable[[], list[str]]
) -> Iterator[None]:
    """No test can do without; one that is marked ``breaks_the_protocol`` must be seen to do so."""
    yield
    problems = _problems()
    if request.node.get_closest_marker("breaks_the_protocol"):
        assert problems, "nothing was noticed"
    else:
        assert problems == []
