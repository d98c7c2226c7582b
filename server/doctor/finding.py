"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    said: str
    """What was found, as a clause without a full stop."""
    fix: str = ""
    """What to do; empty if nothing is wrong."""

    @property
    def ok(self) -> bool:
        """True if there is nothing to do."""
        return not self.fix

    def __str__(self) -> str:
        return (
            f"ok     {self.check}: {self.said}"
            if self.ok
            else f"WRONG  {self.check}: {self.said} -> {self.fix}"
        )
