"""The Dockerfile, built and run for real."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.request import urlopen

import pytest

from tests.e2e import container
from tests.e2e.serving import SCRIPTED

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Box:
    """A running container."""

    name: str
    url: str

    def do(self, *command: str) -> str:
        """What ``command`` prints in it. Raises AssertionError if it fails."""
        return container.podman("exec", self.name, *command).strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    if "WITH_CONTAINER" not in os.environ:
        pytest.skip("WITH_CONTAINER=1 script/test builds and runs the image")
    if lacking := container.missing():
        assert "NEEDS_CONTAINER" not in os.environ, f"it needs {', '.join(lacking)}"
        pytest.skip(f"building the image needs {', '.join(lacking)}")
    container.build(tmp_path_factory.mktemp("build"))
    return container.IMAGE


@pytest.fixture(scope="module")
def box(image: str) -> Iterator[Box]:
    """Runs until the last test here; that it then ends as it should is checked there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    name = f"duologue-{os.getpid()}"
    with container.running(name, "serve", *SCRIPTED, port=port) as served:
        yield Box(name, served.url)


def test_it_serves_calls_and_the_page(box: Box) -> None:
    with urlopen(f"{box.url}/readyz") as response:
        assert json.load(response) == {"status": "ready", "units": 4, "free": 4}
    with urlopen(box.url) as response:
        assert b"<title>" in response.read()


def test_it_runs_without_root_and_writes_to_the_models_only(box: Box) -> None:
    assert box.do("id", "-u") == "10001"
    box.do("test", "-w", "/models")
    with pytest.raises(AssertionError, match="Read-only file system"):
        box.do("touch", "/home/duologue/here")


def test_its_health_check_is_green(image: str, box: Box) -> None:
    inspected = json.loads(container.buildah("inspect", "--type", "image", image))
    kind, *command = inspected["Docker"]["config"]["Healthcheck"]["Test"]
    assert kind == "CMD"
    box.do(*command)


def test_all_that_it_needs_is_in_it(box: Box) -> None:
    lines = box.do("sh", "-c", "duologue doctor || true").splitlines()
    assert [line for line in lines if line.startswith("ok     libraries: all")]
    assert [line for line in lines if line.startswith("ok     port") and "a server is running" in line]
    assert box.do("python", "-c", "import ctranslate2, onnxruntime, xllamacpp") == ""
