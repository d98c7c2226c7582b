"""Replaces the audio jitter buffer of aiortc, which has no public hook. Checked with aiortc 1.16.0 only.

The stock buffer holds 80 ms back without any loss; one lost packet throws four good ones away, stalls
for 320 ms and leaves 280 ms of delay for the rest of the call. This one delivers in-order packets at once,
waits at most three packets for a missing one, and loses only what was lost. It hands encoded packets to
its owner on the event loop thread, so that they need no decoder thread either.

Only the receivers given to :func:`adopt` are changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import aiortc

logger = logging.getLogger(__name__)

CHECKED_VERSION = "1.16.0"
PATIENCE = 3
"""Packets behind a hole before it is given up: 60 ms at 20 ms a packet."""

_RESTART = 500
"""A jump by more packets than this (10 s) is a new stream."""
_STALE = 100
"""A packet older than this many is a new stream; a younger one came too late."""

T = TypeVar("T")
Deliver = Callable[[int, bytes, int], None]
"""Called with payload type, encoded frame and RTP timestamp."""


class Reorder(Generic[T]):
    """Puts packets in the order of their 16 bit sequence numbers."""

    def __init__(self, patience: int = PATIENCE) -> None:
        self._patience = patience
        self._next: int | None = None
        self._waiting: dict[int, T] = {}

    def add(self, sequence: int, packet: T) -> list[T]:
        """The packets that can be used now, in order. Late ones and duplicates are dropped."""
        if self._next is None:
            self._next = sequence
        ahead = _signed(sequence - self._next)
        if -_STALE < ahead < 0:
            return []
        ready: list[T] = []
        if not 0 <= ahead < _RESTART:
            while self._waiting:
                ready += self._skip()
            self._next = sequence
        self._waiting[sequence] = packet
        ready += self._in_order()
        while len(self._waiting) >= self._patience:
            ready += self._skip()
        return ready

    def _in_order(self) -> list[T]:
        ready = []
        while self._next in self._waiting:
            ready.append(self._waiting.pop(self._next))
            self._next = (self._next + 1) & 0xFFFF
        return ready

    def _skip(self) -> list[T]:
        """Give the nearest hole up."""
        origin = self._next or 0
        self._next = min(self._waiting, key=lambda x: (x - origin) & 0xFFFF)
        return self._in_order()


class DirectBuffer:
    """What the receiver takes for its jitter buffer. Gives it nothing and its owner everything."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._reorder: Reorder[Any] = Reorder()

    def add(self, packet: Any) -> tuple[bool, None]:
        """Called by ``RTCRtpReceiver._handle_rtp_packet``: never a picture loss, never a frame to decode."""
        for ready in self._reorder.add(packet.sequence_number, packet):
            if ready._data:
                self._deliver(ready.payload_type, ready._data, ready.timestamp)
        return False, None


def adopt(receiver: aiortc.RTCRtpReceiver, deliver: Deliver) -> bool:
    """Have ``receiver``, which must not have started, deliver its encoded packets to ``deliver``.

    False, with a log line, on a version that was not checked: then the receiver's track works as usual.
    """
    if aiortc.__version__ != CHECKED_VERSION:
        logger.warning(
            "aiortc %s: the audio jitter buffer was only checked with %s", aiortc.__version__, CHECKED_VERSION
        )
        return False
    receiver._RTCRtpReceiver__jitter_buffer = DirectBuffer(deliver)
    return True


def _signed(delta: int) -> int:
    """A difference of 16 bit sequence numbers, from -32768 to 32767."""
    return ((delta + 0x8000) & 0xFFFF) - 0x8000
