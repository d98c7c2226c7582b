"""A server that has its models and no network."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from server.needed import needed
from server.settings import Settings
from tests.e2e.netns import namespaces, skipping_without_namespaces
from tests.e2e.serving import serving

pytestmark = pytest.mark.e2e


def test_a_server_without_a_network_starts_with_the_models_that_are_there(
    model: Callable[[str], Path],
) -> None:
    for name in needed(Settings()):
        model(name)
    with ExitStack() as stack:
        with skipping_without_namespaces():
            (alone,) = stack.enter_context(namespaces(1))
        served = stack.enter_context(serving("--instructions", "Be brief.", prefix=alone.prefix))
        told = json.loads(alone.run("curl", "-sf", f"{served.url}/readyz"))
    assert told["status"] == "ready"
