"""SpeculativeTurnTracker: the caller's turns, from the first sound to the answer.

A turn is SPEAKING until a soft end, then in GRACE: its words are recognised and an answer is made on
speculation. If the caller goes on it is SPEAKING again and whatever was made is stale; otherwise it is
COMMITTED, for good. What belongs to which state of a turn is told by its revision.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

logger = logging.getLogger(__name__)


class TurnState(Enum):
    SPEAKING = auto()
    GRACE = auto()
    COMMITTED = auto()


_NEXT = {
    (TurnState.SPEAKING, "pause"): TurnState.GRACE,
    (TurnState.GRACE, "resume"): TurnState.SPEAKING,
    (TurnState.GRACE, "end"): TurnState.COMMITTED,
    (TurnState.SPEAKING, "commit"): TurnState.COMMITTED,
    (TurnState.GRACE, "commit"): TurnState.COMMITTED,
}


@dataclass(slots=True)
class Turn:
    """One turn of the caller. ``number`` counts from 1 within the session."""

    number: int
    item_id: str
    state: TurnState = TurnState.SPEAKING
    revision: int = 0
    text: str | None = None
    """The words of the current revision; None while they are not known."""
    seconds: float = 0.0
    manual: bool = False
    """Committed by the client, who asks for an answer when it wants one."""
    item: dict[str, Any] | None = None
    """What stands for the turn in the conversation, once it is committed."""
    failure: str | None = None
    """Why the current revision has no words: the recogniser failed."""

    @property
    def committed(self) -> bool:
        return self.state is TurnState.COMMITTED

    def move(self, event: str) -> None:
        """Raises KeyError for an event that this state does not know."""
        after = _NEXT[self.state, event]
        about = {"turn": self.item_id}
        logger.debug("turn %d: %s -> %s", self.number, self.state.name, after.name, extra={"about": about})
        self.state = after


class SpeculativeTurnTracker:
    """The turns that are not answered yet, by number. The last one may still be spoken.

    A turn that was dropped is not known any more: what the ears still have to say about it, since they
    said so before they were told, is without effect.
    """

    def __init__(self) -> None:
        self._open: dict[int, Turn] = {}

    @property
    def current(self) -> Turn | None:
        """The turn that the caller has not finished."""
        return next((turn for turn in self._open.values() if not turn.committed), None)

    @property
    def unanswered(self) -> tuple[Turn, ...]:
        """All of them, oldest first."""
        return tuple(self._open.values())

    @property
    def speaking(self) -> bool:
        """The caller is speaking, or has only just stopped."""
        return self.current is not None

    @property
    def unheard(self) -> bool:
        """A committed turn still waits for its words."""
        return any(turn.committed for turn in self._open.values())

    def started(self, number: int, item_id: str) -> Turn:
        self.clear()  # whoever begins a turn has given up the one before
        turn = self._open[number] = Turn(number, item_id)
        return turn

    def paused(self, number: int, revision: int) -> None:
        if (turn := self._open.get(number)) is not None:
            turn.move("pause")
            turn.revision, turn.text, turn.failure = revision, None, None

    def resumed(self, number: int) -> None:
        if (turn := self._open.get(number)) is not None:
            turn.move("resume")
            turn.text = turn.failure = None

    def ended(self, number: int) -> Turn | None:
        """The turn is committed; if its words are known already, this is the last that is heard of it."""
        turn = self._open.get(number)
        if turn is not None:
            turn.move("end")
            if turn.text is not None:
                self.forget(turn)
        return turn

    def committed(self, number: int, item_id: str, revision: int) -> Turn:
        """A client committed the turn by hand. A turn that was being spoken keeps its item id."""
        turn = self._open.get(number) or self.started(number, item_id)
        turn.move("commit")
        turn.manual = True
        turn.revision, turn.text, turn.failure = revision, None, None
        return turn

    def transcribed(
        self, number: int, revision: int, text: str, seconds: float = 0.0, failure: str | None = None
    ) -> Turn | None:
        """The turn that these are the words of, or None when it has moved on since."""
        turn = self._open.get(number)
        if turn is None or turn.revision != revision or turn.state is TurnState.SPEAKING:
            return None
        turn.text, turn.seconds, turn.failure = text, seconds, failure
        if turn.committed:
            self.forget(turn)
        return turn

    def known(self, number: int) -> Turn | None:
        return self._open.get(number)

    def forget(self, turn: Turn) -> None:
        self._open.pop(turn.number, None)

    def clear(self) -> None:
        """Drop the unfinished turn: the client cleared the input buffer."""
        if (turn := self.current) is not None:
            self.forget(turn)
