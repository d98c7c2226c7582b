"""Fixtures that several folders of tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from units.models.store import ModelStore


@pytest.fixture(scope="session")
def model() -> Callable[[str], Path]:
    """Gives the folder of a model of the store by its name, fetched first if it is not there."""
    return ModelStore().fetch
