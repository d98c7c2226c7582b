"""Two lines in the log for each call: that it begins, and how it went."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from server.watch import Begun
from units.observe import Observer

logger = logging.getLogger(__name__)


class CallLog(Observer):
    """Logs the beginning and the end of a call; counts its answers, and which of them were interrupted."""

    def __init__(self, begun: Begun, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._turns = 0
        self._interrupted: set[str] = set()
        self._answering: tuple[str, str] = ("", "")  # the latest item of an answer, and its response
        about = {"door": begun.door, "unit": begun.unit}
        logger.info("a %s call begins", begun.door, extra={"about": about})

    def sent(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "response.created"}:
                self._turns += 1
            case {"type": "response.output_item.added", "response_id": response, "item": {"id": item}}:
                self._answering = item, response
            case {
                "type": "response.done",
                "response": {"id": response, "status_details": {"reason": reason}},
            }:
                if reason == "turn_detected":
                    self._interrupted.add(response)
            case {"type": "output_audio_buffer.cleared", "response_id": response}:
                self._interrupted.add(response)
            case {"type": "conversation.item.truncated", "item_id": item} if item == self._answering[0]:
                self._interrupted.add(self._answering[1])

    def stopped(self, item_id: str, audio_end_ms: int) -> None:
        if not item_id:  # else the client has truncated it, which is an event
            self._interrupted.add(self._answering[1])

    def closed(self, reason: str) -> None:
        seconds = round(self._clock() - self._began, 3)
        turns, interruptions = self._turns, len(self._interrupted)
        about = {"duration_s": seconds, "reason": reason, "turns": turns, "interruptions": interruptions}
        logger.info(
            "the call ends after %.1f s, %d turns and %d interruptions: %s",
            seconds,
            turns,
            interruptions,
            reason,
            extra={"about": about},
        )
