"""OpenAI's own Python client, unmodified, against a server in a process of its own.

Nothing but ``base_url`` says that it is not OpenAI's service. Every event that the client gets must fit the
client's own model of it, which the client itself does not check.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from tests.e2e.serving import Served
from tests.server.fakes import Client as Browser
from tests.server.fakes import RTCSessionDescription, ToneTrack
from units.engines.scripted import ANSWER, HEARD, LONG_ANSWER, SECONDS_PER_CHARACTER
from units.messages import Int16

MODEL = "gpt-realtime"
RATE = 24_000
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "What the weather is like in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
async def client(served: Served) -> AsyncIterator[AsyncOpenAI]:
    """A client with any key. Whatever it did, the server must then be free again."""
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="anything", max_retries=0) as client:
        yield client
        await free(client)


async def free(client: AsyncOpenAI) -> None:
    """Wait until nobody has a unit."""
    busy = True
    async with asyncio.timeout(10):
        while busy:
            pool: Any = await client.get("/pool", cast_to=object)
            busy = any(unit["session"] for unit in pool["units"])
            await asyncio.sleep(0.02)


class Conversation:
    """One connection of the client, and all that came over it."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.connection = connection
        self.events: list[Any] = []

    async def event(self, kind: str) -> Any:
        """The next event of this type; all before it are noted."""
        async with asyncio.timeout(10):
            while True:
                raw = await self.connection.recv_bytes()
                event = self.connection.parse_event(raw)
                assert event.type == json.loads(raw)["type"]
                type(event).model_validate_json(raw)
                self.events.append(event)
                if event.type == kind:
                    return event

    async def write(self, text: str) -> None:
        """Say something in writing, without asking for an answer."""
        content: Any = [{"type": "input_text", "text": text}]
        await self.connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": content}
        )

    async def answer(self) -> Any:
        """Ask for an answer and wait until it is complete."""
        await self.connection.response.create()
        return (await self.event("response.done")).response

    async def item(self, item_id: str) -> Any:
        """The item as the server has it now."""
        await self.connection.conversation.item.retrieve(item_id=item_id)
        return (await self.event("conversation.item.retrieved")).item

    async def speak(self, ms: int, *, quiet_ms: int = 0) -> None:
        """A sound that the scripted voice activity detection takes for speech, then silence."""
        loud = np.where(np.arange(ms * RATE // 1000) // 30 % 2, 9000, -9000).astype("<i2")
        sound = np.concatenate([loud, np.zeros(quiet_ms * RATE // 1000, "<i2")])
        for start in range(0, len(sound), 2400):
            audio = base64.b64encode(sound[start : start + 2400].tobytes()).decode()
            await self.connection.input_audio_buffer.append(audio=audio)

    def all(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]

    def sound(self) -> Int16:
        deltas = self.all("response.output_audio.delta")
        return np.frombuffer(b"".join(base64.b64decode(event.delta) for event in deltas), "<i2")


@asynccontextmanager
async def talking(client: AsyncOpenAI, **options: Any) -> AsyncIterator[Conversation]:
    """A conversation that has begun."""
    async with client.realtime.connect(**(options or {"model": MODEL})) as connection:
        conversation = Conversation(connection)
        await conversation.event("session.created")
        yield conversation


def length_of(text: str) -> Any:
    """How many samples it takes to speak ``text``."""
    return pytest.approx(SECONDS_PER_CHARACTER * len(text) * RATE, rel=0.05)


async def test_a_written_turn_is_answered_in_writing(client: AsyncOpenAI) -> None:
    async with talking(client) as talk:
        await talk.connection.session.update(
            session={"type": "realtime", "output_modalities": ["text"], "instructions": "Be brief."}
        )
        session = (await talk.event("session.updated")).session
        assert (session.output_modalities, session.instructions) == (["text"], "Be brief.")
        await talk.write("Hello")
        response = await talk.answer()
    assert response.status == "completed"
    assert response.output[0].content[0].text == ANSWER
    assert "".join(event.delta for event in talk.all("response.output_text.delta")) == ANSWER
    assert talk.all("response.output_text.done")[0].text == ANSWER
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0
    assert talk.all("response.output_audio.delta") == []


async def test_a_written_turn_is_answered_aloud(client: AsyncOpenAI) -> None:
    async with talking(client) as talk:
        await talk.write("Hello")
        response = await talk.answer()
    assert response.output[0].content[0].transcript == ANSWER
    assert "".join(event.delta for event in talk.all("response.output_audio_transcript.delta")) == ANSWER
    sound = talk.sound()
    assert len(sound) == length_of(ANSWER)
    assert 9000 < np.abs(sound.astype(int)).max() < 11_000


async def test_a_spoken_turn_is_heard_and_answered(client: AsyncOpenAI) -> None:
    async with talking(client) as talk:
        transcription: Any = {"input": {"transcription": {"model": "gpt-4o-mini-transcribe"}}}
        await talk.connection.session.update(session={"type": "realtime", "audio": transcription})
        await talk.event("session.updated")
        await talk.speak(600, quiet_ms=1200)
        response = (await talk.event("response.done")).response
        item = (await talk.item(talk.all("input_audio_buffer.committed")[0].item_id)).content[0]
    started, stopped = (talk.all(f"input_audio_buffer.speech_{end}")[0] for end in ("started", "stopped"))
    assert started.item_id == stopped.item_id
    assert stopped.audio_end_ms > started.audio_start_ms
    heard = talk.all("conversation.item.input_audio_transcription.completed")
    assert [event.transcript for event in heard] == [HEARD]
    assert item.transcript == HEARD
    assert response.output[0].content[0].transcript == ANSWER
    assert len(talk.sound()) == length_of(ANSWER)


async def test_a_turn_is_committed_by_hand(client: AsyncOpenAI) -> None:
    async with talking(client) as talk:
        by_hand: Any = {"input": {"turn_detection": None}}
        await talk.connection.session.update(session={"type": "realtime", "audio": by_hand})
        await talk.event("session.updated")
        await talk.speak(600)
        await talk.connection.input_audio_buffer.commit()
        await talk.event("input_audio_buffer.committed")
        response = await talk.answer()
    assert response.output[0].content[0].transcript == ANSWER
    assert talk.all("input_audio_buffer.speech_started") == []


async def test_a_tool_is_called_and_its_result_answered(client: AsyncOpenAI) -> None:
    async with talking(client) as talk:
        await talk.connection.session.update(
            session={"type": "realtime", "output_modalities": ["text"], "tools": [WEATHER]}
        )
        session = (await talk.event("session.updated")).session
        assert [tool.name for tool in session.tools] == ["get_weather"]
        await talk.write("What is the weather like?")
        (call,) = (await talk.answer()).output
        assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
        assert json.loads(call.arguments) == {"city": "Oslo"}
        done = talk.all("response.function_call_arguments.done")[0]
        assert (done.call_id, done.arguments) == (call.call_id, call.arguments)
        await talk.connection.conversation.item.create(
            item={"type": "function_call_output", "call_id": call.call_id, "output": "four degrees"}
        )
        (message,) = (await talk.answer()).output
    assert message.content[0].text == "The tool said: four degrees."


async def test_an_answer_is_cancelled(client: AsyncOpenAI) -> None:
    endless = "And so on. " * 500  # it takes longer to make than a second event to arrive
    async with talking(client) as talk:
        await talk.write(f"[[echo:{endless}]]")
        await talk.connection.response.create()
        await talk.connection.response.cancel()
        response = (await talk.event("response.done")).response
        assert (response.status, response.status_details.reason) == ("cancelled", "client_cancelled")
        await talk.write("[[echo:Still here.]]")
        again = await talk.answer()
    assert again.output[0].content[0].transcript == "Still here."
    assert len(talk.sound()) < SECONDS_PER_CHARACTER * len(endless) * RATE


async def test_speaking_interrupts_and_what_was_not_heard_is_cut_off(client: AsyncOpenAI) -> None:
    async with talking(client) as talk:
        await talk.write("[[long]]")
        await talk.connection.response.create()
        item_id = (await talk.event("response.output_audio.delta")).item_id
        await talk.speak(300)
        await talk.event("input_audio_buffer.speech_started")
        await talk.connection.conversation.item.truncate(item_id=item_id, content_index=0, audio_end_ms=600)
        assert (await talk.event("conversation.item.truncated")).audio_end_ms == 600
        kept = (await talk.item(item_id)).content[0].transcript
    assert kept
    assert LONG_ANSWER.startswith(kept.rstrip())
    assert len(kept) <= 10


async def test_handlers_get_the_events(client: AsyncOpenAI) -> None:
    words: list[str] = []
    connecting = client.realtime.connect(model=MODEL)
    connecting.on("response.output_text.delta", lambda event: words.append(event.delta))
    async with connecting as connection:

        @connection.on("session.created")
        async def begin(_event: Any) -> None:
            await connection.response.create(
                response={"output_modalities": ["text"], "instructions": "Greet.", "conversation": "none"}
            )

        @connection.on("response.done")
        async def end(_event: Any) -> None:
            await connection.close()

        async with asyncio.timeout(10):
            await connection.dispatch_events()
    assert "".join(words) == ANSWER


async def test_a_mistake_is_an_error_event_and_the_session_goes_on(client: AsyncOpenAI) -> None:
    async with talking(client) as talk:
        await talk.connection.conversation.item.retrieve(item_id="item_never", event_id="mine")
        error = (await talk.event("error")).error
        assert (error.code, error.event_id) == ("item_retrieve_invalid_item_id", "mine")
        await talk.write("[[echo:Still here.]]")
        assert (await talk.answer()).output[0].content[0].transcript == "Still here."


async def listened(talk: Conversation) -> None:
    """Two turns to a session that only transcribes."""
    transcription: Any = {"input": {"transcription": {"model": "gpt-4o-mini-transcribe"}}}
    await talk.connection.session.update(session={"type": "transcription", "audio": transcription})
    assert (await talk.event("session.updated")).session.type == "transcription"
    for _ in range(2):
        await talk.speak(600, quiet_ms=1200)
        heard = await talk.event("conversation.item.input_audio_transcription.completed")
        assert heard.transcript == HEARD
    assert [event.type for event in talk.events if event.type.startswith("response.")] == []


async def test_speech_is_transcribed_and_not_answered(client: AsyncOpenAI) -> None:
    async with talking(client, extra_query={"intent": "transcription"}) as talk:
        assert talk.events[0].session.type == "transcription"
        await listened(talk)


# --- ephemeral keys ------------------------------------------------------------------------------------


async def test_an_ephemeral_key_opens_the_session_that_it_was_made_for(client: AsyncOpenAI) -> None:
    made = await client.realtime.client_secrets.create(
        expires_after={"anchor": "created_at", "seconds": 60},
        session={"type": "realtime", "instructions": "Be brief.", "output_modalities": ["text"]},
    )
    type(made).model_validate_json(made.to_json())
    assert made.value.startswith("ek_")
    assert made.session.instructions == "Be brief."
    async with AsyncOpenAI(base_url=client.base_url, api_key=made.value) as page, talking(page) as talk:
        session = talk.events[0].session
        assert (session.instructions, session.output_modalities) == ("Be brief.", ["text"])
        await talk.write("Hello")
        assert (await talk.answer()).output[0].content[0].text == ANSWER


async def test_an_ephemeral_key_opens_a_session_that_transcribes(client: AsyncOpenAI) -> None:
    made = await client.realtime.client_secrets.create(session={"type": "transcription"})
    type(made).model_validate_json(made.to_json())
    assert (made.session.type, made.session.object) == ("transcription", "realtime.transcription_session")
    async with AsyncOpenAI(base_url=client.base_url, api_key=made.value) as page, talking(page) as talk:
        assert talk.events[0].session.type == "transcription"
        await listened(talk)


async def test_an_ephemeral_key_that_was_never_made_opens_nothing(client: AsyncOpenAI) -> None:
    page = client.with_options(api_key="ek_never")
    async with page.realtime.connect(model=MODEL) as connection:
        event = await connection.recv()
        assert event.type == "error"
        assert event.error.code == "invalid_api_key"
        with pytest.raises(ConnectionClosedError) as closed:
            await connection.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 3000


async def test_a_wrong_setting_raises_what_the_client_raises(client: AsyncOpenAI) -> None:
    session: Any = {"type": "realtime", "bogus": 1}
    with pytest.raises(openai.BadRequestError) as refused:
        await client.realtime.client_secrets.create(session=session)
    assert (refused.value.code, refused.value.param) == ("unknown_parameter", "session.bogus")


# --- calls ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def calling(client: AsyncOpenAI, track: ToneTrack) -> AsyncIterator[tuple[Browser, str]]:
    """A WebRTC call that the client placed, with settings, and its id."""
    browser = Browser().add_channel().add_audio(track)
    try:
        made = await client.realtime.calls.with_raw_response.create(
            sdp=await browser.offer(),
            session={"type": "realtime", "model": MODEL, "instructions": "Be brief."},
        )
        assert made.http_response.status_code == 201
        answer = RTCSessionDescription(made.parse().text, "answer")
        await browser.connection.setRemoteDescription(answer)
        async with asyncio.timeout(10):
            await browser.connected.wait()
        yield browser, made.headers["Location"].rsplit("/", 1)[1]
    finally:
        await browser.close()


async def until(browser: Browser, kind: str) -> Any:
    while (event := await browser.next_event())["type"] != kind:
        assert event["type"] != "error", event
    return event


@pytest.mark.e2e
async def test_a_call_is_placed_spoken_in_and_hung_up(client: AsyncOpenAI) -> None:
    track = ToneTrack()
    track.level = 0
    async with calling(client, track) as (browser, call_id):
        assert (await until(browser, "session.created"))["session"]["instructions"] == "Be brief."
        track.level = 8000
        await until(browser, "input_audio_buffer.speech_started")
        track.level = 0
        response = (await until(browser, "response.done"))["response"]
        assert response["output"][0]["content"][0]["transcript"] == ANSWER
        await until(browser, "output_audio_buffer.stopped")
        assert max(np.abs(frame.to_ndarray().astype(int)).max() for frame in browser.frames) > 5000
        ended = asyncio.Event()
        browser.connection.on("connectionstatechange", ended.set)
        await client.realtime.calls.hangup(call_id)
        async with asyncio.timeout(10):
            await ended.wait()
        assert browser.connection.connectionState == "closed"
        await free(client)


@pytest.mark.e2e
async def test_a_call_is_controlled_from_a_second_connection(client: AsyncOpenAI) -> None:
    track = ToneTrack()
    track.level = 0
    async with calling(client, track) as (browser, call_id), talking(client, call_id=call_id) as side:
        assert side.events[0].session.instructions == "Be brief."
        await side.write("Hello")
        response = await side.answer()
        assert response.output[0].content[0].transcript == ANSWER
        assert side.all("response.output_audio.delta") == []
        assert (await until(browser, "response.done"))["response"]["id"] == response.id
        await until(browser, "output_audio_buffer.stopped")
        await client.realtime.calls.hangup(call_id)
        async with asyncio.timeout(10):
            assert [event async for event in side.connection if event.type == "error"] == []


async def test_a_call_that_never_was_cannot_be_hung_up(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        await client.realtime.calls.hangup("rtc_never")
    assert refused.value.code == "call_id_not_found"


async def test_a_call_that_never_was_cannot_be_controlled(client: AsyncOpenAI) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with client.realtime.connect(call_id="rtc_never"):
            pass
    assert refused.value.response.status_code == 404


async def test_an_offer_that_is_none_is_refused(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.realtime.calls.create(sdp="This is not SDP.", session={"type": "realtime"})
    assert refused.value.code == "invalid_offer"
