"""Units with scripted engines, for what the server makes of them."""

from tests.units.conftest import new_unit

__all__ = ["new_unit"]
