"""The data channel as a unit's session sees it: a transport that takes events and never blocks.

Events sent before the channel exists are kept, within bounds, and leave in order when it opens. What is
too large for the peer loses its ``audio``, or becomes an ``error`` event. A peer that does not read is
hung up on.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from aiortc import RTCDataChannel

from server.sdp import DEFAULT_MAX_MESSAGE_SIZE

logger = logging.getLogger(__name__)

LABEL = "oai-events"
MAX_KEPT = 1_000_000
"""Bytes kept for a channel that does not exist yet; older events give way."""
MAX_BUFFERED = 8_000_000
"""Bytes queued for a peer that does not read."""

Event = dict[str, Any]


class EventChannel:
    """The transport of one call.

    :param hang_up: called with a reason when the session, or the peer's slowness, ends the call.
    """

    plays_audio = True
    """Speech is heard through the outbound track; no audio travels in events."""

    def __init__(self, hang_up: Callable[[str], None]) -> None:
        self._hang_up = hang_up
        self._channel: RTCDataChannel | None = None
        self._kept: deque[str] = deque()
        self._kept_size = 0
        self.max_message_size: int | None = DEFAULT_MAX_MESSAGE_SIZE
        """Bytes that the peer accepts in one message; None: it will never have a channel."""

    @property
    def attached(self) -> bool:
        """Whether the peer has made its channel."""
        return self._channel is not None

    @property
    def connected(self) -> bool:
        """Whether events reach the peer, or never will."""
        return self.attached or self.max_message_size is None

    def send(self, event: Event) -> None:
        """Send an event, or keep it until there is a channel. One JSON text per message."""
        if self.max_message_size is None:
            return
        text = self._fitting(event)
        if self._channel is None:
            self._keep(text)
        elif self._channel.readyState == "open":
            self._write(self._channel, text)

    def close(self, reason: str) -> None:
        """End the call."""
        self._hang_up(reason)

    def release(self) -> None:
        """The call has ended: forget the peer, so that nothing keeps either alive."""
        self._hang_up = _ended
        if self._channel is not None:
            self._channel.remove_all_listeners()

    def attach(self, channel: RTCDataChannel) -> None:
        """``channel`` has been made by the peer. It may be open already: aiortc hands it over like that."""
        self._channel = channel
        if channel.readyState == "open":
            self._flush()
        else:
            channel.on("open", self._flush)

    def _flush(self) -> None:
        kept, self._kept = self._kept, deque()
        for text in kept:
            if self._channel is not None and self._channel.readyState == "open":
                self._write(self._channel, text)

    def _keep(self, text: str) -> None:
        self._kept.append(text)
        self._kept_size += len(text)
        while self._kept_size > MAX_KEPT:
            self._kept_size -= len(self._kept.popleft())

    def _write(self, channel: RTCDataChannel, text: str) -> None:
        if channel.bufferedAmount > MAX_BUFFERED:
            logger.info("the peer does not read its events")
            self._hang_up("the client does not read its events")
            return
        logger.debug("> %s", text)
        channel.send(text)

    def _fitting(self, event: Event) -> str:
        limit = self.max_message_size or DEFAULT_MAX_MESSAGE_SIZE
        text = _text(event)
        if _size(text) > limit:
            text = _text(_without_audio(event))
        size = _size(text)
        if size > limit:
            text = _text(_too_large(event, size, limit))
        return text


def _ended(_reason: str) -> None: ...


def _text(event: Event) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _without_audio(body: Any) -> Any:
    """``body`` without the recordings in it: texts under the key ``audio``. Settings under it stay."""
    if isinstance(body, dict):
        return {k: _without_audio(v) for k, v in body.items() if not (k == "audio" and isinstance(v, str))}
    if isinstance(body, list):
        return [_without_audio(x) for x in body]
    return body


def _too_large(event: Event, size: int, limit: int) -> Event:
    message = (
        f"An event of type {event.get('type')!r} has {size} bytes; the client accepts {limit} in a message."
    )
    error = {
        "type": "server_error",
        "code": "event_too_large",
        "message": message,
        "param": None,
        "event_id": None,
    }
    return {"type": "error", "event_id": event.get("event_id"), "error": error}
