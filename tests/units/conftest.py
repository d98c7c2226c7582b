"""Units that are stopped after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest_asyncio
from hypothesis import settings

from tests.units.caller import WatchedUnit

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

UnitFactory = Callable[..., WatchedUnit]


@pytest_asyncio.fixture
async def new_unit() -> AsyncIterator[UnitFactory]:
    """Makes started units; takes what WatchedUnit takes. Their threads must end with the test."""
    units: list[WatchedUnit] = []

    def make(*args: Any, **kwargs: Any) -> WatchedUnit:
        unit = WatchedUnit(*args, **kwargs)
        unit.start()
        units.append(unit)
        return unit

    yield make
    for unit in units:
        assert await unit.finished() == []
