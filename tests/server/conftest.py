"""Real units for the tests that want one without a server around it."""

from tests.units.conftest import new_unit

__all__ = ["new_unit"]
