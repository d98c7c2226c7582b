"""What a clumsy or hostile client sends, over either door: one error each, and nobody else notices."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType
from aiortc.rtcsctptransport import WEBRTC_STRING

from server.peer import MOST_PIECES, MOST_STREAMS
from server.sdp import LOCAL_MAX_MESSAGE_SIZE
from tests.server.fakes import Client
from tests.server.test_socket import CREATE, URL, Json, Served, pipeline, served, text

pytestmark = pytest.mark.e2e

__all__ = ["pipeline", "served"]

LONG = "x" * 300_000
WRITTEN = json.dumps(CREATE | {"response": {"output_modalities": ["text"]}})
"""Asks for an answer in writing."""


def event(kind: str, **members: Any) -> str:
    return json.dumps({"type": kind, **members})


BAD: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "invalid_json"),
    "no JSON": ('{"type":', "invalid_json"),
    "two objects": ('{"type":"a"}{"type":"b"}', "invalid_json"),
    "not a number": ('{"type":NaN}', "invalid_json"),
    "binary": (b'{"type":"response.create"}', "invalid_event"),
    "bytes that are no text": (b"\xff\xfe\x00", "invalid_event"),
    "70 KB of no JSON": ("x" * 70_000, "invalid_json"),
    "70 KB of an unknown type": (event("nope", pad="x" * 70_000), "invalid_value"),
    "10,000 levels": ("[" * 10_000, "invalid_json"),
    "10,000 levels, closed": ('{"a":' * 10_000 + "1" + "}" * 10_000, "invalid_json"),
    "200 levels": ('{"a":' * 200 + "1" + "}" * 200, "invalid_json"),
    "60,000 values": ("[" + "0," * 60_000 + "0]", "invalid_event"),
    "half a character": ('{"type":"\\ud800"}', "invalid_value"),
    "half an id": (
        '{"type":"conversation.item.delete","item_id":"\\udfff"}',
        "item_delete",
    ),
    "a list": ("[]", "invalid_event"),
    "null": ("null", "invalid_event"),
    "a type that is a number": ('{"type":5}', "invalid_type"),
    "no type": ("{}", "missing_required_parameter"),
    "a session that is a list": (event("session.update", session=[]), "invalid_type"),
    "sound that is a number": (event("input_audio_buffer.append", audio=5), "invalid_type"),
    "sound that is no base64": (event("input_audio_buffer.append", audio="%"), "invalid_value"),
    "an odd number of bytes": (event("input_audio_buffer.append", audio="AAAA"), "invalid_value"),
    "an item that is text": (event("conversation.item.create", item="hello"), "invalid_type"),
    "a response that is text": (event("response.create", response="hello"), "invalid_type"),
    "an id that is an object": (event("conversation.item.retrieve", item_id={}), "invalid_type"),
    "a time that is text": (
        event("conversation.item.truncate", item_id="a", content_index=0, audio_end_ms="soon"),
        "item_truncate",
    ),
}


class Door:
    """A client over one of the two doors, that sends whatever it likes."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    async def send(self, message: str | bytes) -> None:
        raise NotImplementedError

    async def receive(self) -> Json:
        raise NotImplementedError

    async def next_event(self) -> Json:
        received = await self.receive()
        self.kinds.append(received["type"])
        return received

    async def errors(self) -> list[str]:
        """Codes of all errors so far. Whatever else has come is left out."""
        await self.send('{"type":"input_audio_buffer.clear"}')
        codes = []
        while (each := await self.next_event())["type"] != "input_audio_buffer.cleared":
            if each["type"] == "error":
                codes.append(each["error"]["code"])
        return codes

    async def answer(self) -> str:
        """What is said to a written question."""
        await self.send(json.dumps(text("[[echo:Still here.]]")))
        await self.send(WRITTEN)
        while (each := await self.next_event())["type"] != "response.done":
            assert each["type"] != "error", each
        return str(each["response"]["output"][0]["content"][0]["text"])


class Socket(Door):
    def __init__(self, socket: ClientWebSocketResponse) -> None:
        super().__init__()
        self.socket = socket

    async def send(self, message: str | bytes) -> None:
        await self.socket.send_frame(
            message.encode() if isinstance(message, str) else message,
            WSMsgType.TEXT if isinstance(message, str) else WSMsgType.BINARY,
        )

    async def receive(self) -> Json:
        received: Json = await self.socket.receive_json(timeout=10)
        return received


class Channel(Door):
    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        client.connection.sctp._remote_max_message_size = 0  # does not care how much the server takes

    async def send(self, message: str | bytes) -> None:
        self.client.channel.send(message)

    async def receive(self) -> Json:
        return await self.client.next_event()


@pytest.fixture(params=["WebSocket", "WebRTC"])
async def door(request: pytest.FixtureRequest, served: Served) -> AsyncIterator[Door]:
    """A client whose session has begun; its unit must be free again in the end."""
    if request.param == "WebSocket":
        async with served.http.ws_connect(URL) as socket:
            await socket.receive_json(timeout=5)
            yield Socket(socket)
    else:
        client = await Client().add_channel().call(served.http)
        await client.next_event()
        yield Channel(client)
        await client.close()
    await served.free()


@pytest.fixture
async def other(served: Served) -> AsyncIterator[Door]:
    """Somebody else, on the other unit."""
    async with served.http.ws_connect(URL) as socket:
        await socket.receive_json(timeout=5)
        yield Socket(socket)


async def test_a_bad_message_is_one_error_and_the_session_lives(door: Door) -> None:
    for name, (message, code) in BAD.items():
        await door.send(message)
        (found,) = await door.errors()
        assert found.startswith(code), name
    assert await door.answer() == "Still here."


async def test_70_kb_of_text_are_taken(door: Door) -> None:
    await door.send(json.dumps(text("x" * 70_000)))
    assert await door.errors() == []
    assert await door.answer() == "Still here."


async def test_300_kb_of_text_are_taken_or_are_one_error(door: Door) -> None:
    await door.send(json.dumps(text(LONG)))
    fits = isinstance(door, Socket) or len(LONG) < LOCAL_MAX_MESSAGE_SIZE
    assert await door.errors() == ([] if fits else ["invalid_event"])
    assert await door.answer() == "Still here."


@pytest.mark.breaks_the_protocol  # the client cannot be told of the item
async def test_a_result_that_is_too_long_for_the_client_is_taken_and_its_events_are_errors(
    served: Served,
) -> None:
    def small(offer: str) -> str:
        return offer.replace(f"max-message-size:{LOCAL_MAX_MESSAGE_SIZE}", "max-message-size:65536")

    client = await Client().add_channel().call(served.http, small)
    door = Channel(client)
    await door.next_event()
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "x" * 100_000}
    for item in (call, result):
        await door.send(event("conversation.item.create", item=item))
    assert await door.errors() == ["event_too_large"] * 2
    assert await door.answer() == "Still here."
    await client.close()
    await served.free()


@pytest.mark.parametrize(("size", "pieces"), [(50_000_000, MOST_PIECES), (100_000, 50)])
async def test_a_message_too_large_or_in_too_many_pieces_ends_its_call_and_keeps_nobody_waiting(
    served: Served, other: Door, monkeypatch: pytest.MonkeyPatch, size: int, pieces: int
) -> None:
    monkeypatch.setattr("server.peer.MOST_PIECES", pieces)
    client = await Client().add_channel().call(served.http)
    door = Channel(client)
    await door.next_event()
    await door.send("x" * size)
    async with asyncio.timeout(3):
        assert [await other.answer() for _ in range(3)] == ["Still here."] * 3
    assert (await door.next_event())["error"]["code"] == "invalid_event"
    async with asyncio.timeout(5):
        while not served.pool.free:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await client.close()


async def test_who_opens_channels_without_end_is_hung_up_on(served: Served, other: Door) -> None:
    client = Client().add_channel()
    for number in range(MOST_STREAMS):
        client.connection.createDataChannel(f"more {number}")
    await client.call(served.http)
    types = []
    async with asyncio.timeout(5):
        while not served.pool.free:
            while not client.events.empty():
                types.append((await client.events.get()).get("error", {}).get("code"))
            await asyncio.sleep(0.01)
    assert "invalid_event" in types
    assert await other.answer() == "Still here."
    await client.close()


async def test_text_that_is_not_utf_8_is_one_error_over_a_data_channel(served: Served) -> None:
    client = await Client().add_channel().call(served.http)
    door = Channel(client)
    await door.next_event()
    client.connection.sctp._data_channel_queue.append((client.channel, WEBRTC_STRING, b"\xff\xfe"))
    client.channel._addBufferedAmount(2)
    assert await door.errors() == ["invalid_event"]
    assert await door.answer() == "Still here."
    await client.close()
    await served.free()


async def test_a_flood_of_mistakes_is_answered_one_by_one_and_slows_nobody(door: Door, other: Door) -> None:
    async def flood() -> list[str]:
        for number in range(1000):
            await door.send(event("nope", event_id=f"mine_{number}"))
        return await door.errors()

    flooding = asyncio.create_task(flood())
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers = [await other.answer() for _ in range(3)]
    took = loop.time() - began
    assert answers == ["Still here."] * 3
    assert await flooding == ["invalid_value"] * 1000
    assert took < 3
    assert await door.answer() == "Still here."


async def test_of_a_flood_of_requests_each_is_an_answer_or_an_error(door: Door, other: Door) -> None:
    for _ in range(200):
        await door.send(WRITTEN)
    assert await other.answer() == "Still here."
    codes = await door.errors()
    assert set(codes) == {"conversation_already_has_active_response"}
    assert len(codes) + door.kinds.count("response.created") == 200


async def test_16_mb_of_sound_in_one_message_keep_nobody_waiting(served: Served, other: Door) -> None:
    sound = base64.b64encode(bytes(12_000_000)).decode()
    async with served.http.ws_connect(URL) as socket:
        door = Socket(socket)
        sending = asyncio.create_task(door.send(event("input_audio_buffer.append", audio=sound)))
        assert await other.answer() == "Still here."
        await sending
        assert await door.errors() == []
        assert await door.answer() == "Still here."


@pytest.mark.parametrize("label", ["oai-events", "another"])
async def test_a_second_data_channel_is_an_error_and_the_first_goes_on(served: Served, label: str) -> None:
    client = await Client().add_channel().call(served.http)
    door = Channel(client)
    second = client.connection.createDataChannel(label)
    closed = asyncio.Event()
    second.on("open", lambda: second.send('{"type":"response.create"}'))
    second.on("close", closed.set)
    async with asyncio.timeout(5):
        await closed.wait()
    assert await door.errors() == ["invalid_event"]
    assert await door.answer() == "Still here."
    await client.close()
    await served.free()
