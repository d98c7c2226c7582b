from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from server.channel import MAX_BUFFERED, MAX_KEPT, EventChannel


class FakeChannel:
    """A data channel that notes what is sent."""

    def __init__(self, state: str = "open") -> None:
        self.readyState = state
        self.bufferedAmount = 0
        self.sent: list[str] = []
        self.on_open: Callable[[], None] | None = None

    def on(self, event: str, handler: Callable[[], None]) -> None:
        assert event == "open"
        self.on_open = handler

    def send(self, text: str) -> None:
        self.sent.append(text)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(x) for x in self.sent]


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def transport(reasons: list[str]) -> EventChannel:
    return EventChannel(reasons.append)


@pytest.mark.parametrize("state", ["open", "connecting"])
def test_events_sent_before_the_channel_is_open_follow_in_order(transport: EventChannel, state: str) -> None:
    channel = FakeChannel(state)
    transport.send({"n": 1})
    transport.send({"n": 2})
    transport.attach(channel)
    if channel.on_open:
        assert channel.sent == []
        channel.readyState = "open"
        channel.on_open()
    transport.send({"n": 3})
    assert channel.events == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_what_is_kept_is_bounded_and_the_oldest_gives_way(transport: EventChannel) -> None:
    for n in range(50):
        transport.send({"n": n, "text": "x" * 60_000})
    channel = FakeChannel()
    transport.attach(channel)
    assert sum(map(len, channel.sent)) <= MAX_KEPT
    assert channel.events[-1]["n"] == 49
    assert channel.events[0]["n"] > 20


def test_nothing_is_kept_for_a_peer_that_will_have_no_channel(transport: EventChannel) -> None:
    transport.max_message_size = None
    transport.send({"n": 1})
    assert not transport._kept


def test_a_text_is_not_escaped(transport: EventChannel) -> None:
    channel = FakeChannel()
    transport.attach(channel)
    transport.send({"text": "ä"})
    assert channel.sent == ['{"text":"ä"}']


def test_a_recording_too_large_for_the_peer_is_left_out(transport: EventChannel) -> None:
    channel = FakeChannel()
    transport.attach(channel)
    part = {"type": "input_audio", "transcript": "Hi.", "audio": "A" * 70_000}
    settings = {"audio": {"output": {"voice": "alloy"}}}
    transport.send({"type": "conversation.item.retrieved", "item": {"content": [part]}, **settings})
    (event,) = channel.events
    assert event["item"]["content"] == [{"type": "input_audio", "transcript": "Hi."}]
    assert event["audio"] == settings["audio"]


def test_an_event_too_large_for_the_peer_becomes_an_error(transport: EventChannel) -> None:
    channel = FakeChannel()
    transport.max_message_size = 1000
    transport.attach(channel)
    transport.send({"type": "response.done", "event_id": "event_9", "text": "ä" * 600})
    (event,) = channel.events
    assert event["type"] == "error"
    assert event["error"]["code"] == "event_too_large"
    assert "response.done" in event["error"]["message"]


def test_a_peer_that_does_not_read_is_hung_up_on(transport: EventChannel, reasons: list[str]) -> None:
    channel = FakeChannel()
    transport.attach(channel)
    channel.bufferedAmount = MAX_BUFFERED + 1
    transport.send({"n": 1})
    assert channel.sent == []
    assert reasons == ["the client does not read its events"]


def test_events_for_a_closed_channel_are_dropped(transport: EventChannel) -> None:
    channel = FakeChannel()
    transport.attach(channel)
    channel.readyState = "closed"
    transport.send({"n": 1})
    assert channel.sent == []
