"""Where the sound of one side of a call belongs on the line of time. Pure: time is an argument.

A place is a number of samples at :data:`RATE` since the call began. What arrives in time is put next to what
came before it, however unevenly it comes, and what would drift away from the clock is put right in a silence.
Of a sender that is faster than the clock everything is kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from units.messages import Int16

RATE = 24_000
"""Of everything here, in Hz."""

_GAP = RATE // 5
"""Sound that comes later than that was not there before."""
_CLOSE = RATE // 25
"""How far from the clock sound may be in a silence."""
_PAUSE = RATE // 2
"""A silence from here on may be made shorter or longer."""
_QUIET = 100
"""Of 32768: below that is silence."""
_OWED = 2 * RATE
"""Silence that was put in and may be left out again, at most: what was missing came after all."""
_DRIFT = 500
"""One sample in so many may be left out besides: clocks differ by less."""
_SKIPS = RATE
"""The outbound track catches up with its clock after any shorter delay."""
_MOST = 600 * RATE
"""What is put further ahead of what was taken than that is left out."""


@dataclass(slots=True)
class _Piece:
    start: int
    samples: Int16
    item_id: str

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


class Track:
    """One side of a call: put at the front, taken from the back. What nobody has filled is silence."""

    def __init__(self) -> None:
        self.end = 0
        """Behind the last sample."""
        self.overfull = False
        """Something was left out, since too much is here already."""
        self._taken = 0
        self._pieces: deque[_Piece] = deque()
        self._starts: dict[str, int] = {}  # of items
        self._quiet = _PAUSE  # samples of silence so far
        self._owed = 0  # silence that may be left out

    def arrived(self, samples: Int16, now: int) -> None:
        """The last of ``samples`` has just been spoken."""
        if not len(samples):
            return
        self._quiet = self._quiet + len(samples) if np.abs(samples).max() < _QUIET else 0
        late = now - len(samples) - self.end
        settling = self._quiet > _PAUSE
        self._owed = min(self._owed + len(samples) // _DRIFT, _OWED)
        if not self.end:
            self._owed = max(0, min(late, _GAP))
            self._put(late, samples)
        elif late > (_CLOSE if settling else _GAP):
            self._owed = min(self._owed + late, _OWED)
            self._put(self.end + late, samples)
        elif settling and late <= -_CLOSE:
            cut = min(self._owed, -late, len(samples))
            self._owed -= cut
            self._put(self.end, samples[cut:])
        else:
            self._put(self.end, samples)

    def began(self, samples: Int16, now: int) -> None:
        """The first of ``samples`` is being played now."""
        late = now - self.end
        self._put(now if late > _SKIPS or not self.end else self.end, samples)

    def queued(self, samples: Int16, now: int, item_id: str) -> None:
        """More of this item, to be played now or after what is queued already."""
        start = max(now, self.end)
        self._starts.setdefault(item_id, start)
        self._put(start, samples, item_id)

    def stop(self, now: int) -> None:
        """Nothing of what is queued is played any more."""
        self._cut(now, {piece.item_id for piece in self._pieces})

    def shorten(self, item_id: str, length: int) -> None:
        """No more of this item is played than so many samples."""
        if item_id in self._starts:
            self._cut(self._starts[item_id] + length, {item_id})

    def take(self, n: int) -> Int16:
        """The next ``n`` samples."""
        taken = np.zeros(n, np.int16)
        first, self._taken = self._taken, self._taken + n
        while self._pieces and self._pieces[0].start < self._taken:
            piece = self._pieces.popleft()
            samples = piece.samples[max(0, first - piece.start) :]
            at = max(0, piece.start - first)
            fits = min(len(samples), n - at)
            taken[at : at + fits] = samples[:fits]
            if len(samples) > fits:
                self._pieces.appendleft(_Piece(self._taken, samples[fits:], piece.item_id))
        return taken

    def _put(self, start: int, samples: Int16, item_id: str = "") -> None:
        start = max(start, self.end, self._taken)
        if start + len(samples) - self._taken > _MOST:
            self.overfull = True
        elif len(samples):
            self._pieces.append(_Piece(start, samples, item_id))
            self.end = start + len(samples)

    def _cut(self, place: int, item_ids: set[str]) -> None:
        kept = [piece for piece in self._pieces if piece.item_id not in item_ids or piece.start < place]
        for piece in kept:
            if piece.item_id in item_ids and piece.end > place:
                piece.samples = piece.samples[: place - piece.start]
        self._pieces = deque(kept)
        self.end = max((piece.end for piece in kept), default=min(self.end, max(place, self._taken)))
