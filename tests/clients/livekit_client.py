"""Drives the realtime model of LiveKit's openai plugin, unmodified, without a LiveKit room.

    python livekit_client.py http://127.0.0.1:8080

It runs in an environment of its own, with livekit_requirements.txt. The session of the model is used as
LiveKit's AgentSession uses it: sound is pushed in, generations are read, the chat context is edited. Prints
one line of JSON for each check: its name, what was seen, and all that LiveKit warned of. Judging that is left
to the caller.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from livekit import rtc
from livekit.agents import Agent, AgentSession, llm
from livekit.agents.voice import io
from livekit.plugins import openai

sys.path.insert(0, str(Path(__file__).parent))
from relay import relayed

RATE = 24_000
FRAME = RATE // 50

Seen = dict[str, Any]


@llm.function_tool
async def get_weather(city: str) -> str:
    """What the weather is like in a city.

    Args:
        city: The name of the city.
    """
    return f"four degrees in {city}"


class Diary(logging.Handler):
    """One session, what it heard and all that went wrong."""

    def __init__(self, session: openai.realtime.RealtimeSession) -> None:
        super().__init__(logging.WARNING)
        self.session = session
        self.errors: list[str] = []
        self.events: list[Seen] = []
        self.heard: list[str] = []
        self.metrics: list[Any] = []
        self.generations: asyncio.Queue[llm.GenerationCreatedEvent] = asyncio.Queue()
        self.news = asyncio.Event()
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        session.on("error", lambda event: self.errors.append(repr(event.error)))
        session.on("generation_created", self.generations.put_nowait)
        session.on("input_speech_started", lambda _: self.started.set())
        session.on("input_speech_stopped", lambda _: self.stopped.set())
        session.on("input_audio_transcription_completed", self._transcribed)
        session.on("metrics_collected", self.metrics.append)
        session.on("openai_server_event_received", self._received)

    def emit(self, record: logging.LogRecord) -> None:
        """Something that LiveKit warned of."""
        shown = {key: value for key, value in vars(record).items() if key in ("error", "errors", "event")}
        self.errors.append(f"{record.getMessage()} {shown or ''} {record.exc_text or ''}".strip())

    def _received(self, event: Seen) -> None:
        self.events.append(event)
        self.news.set()

    async def until(self, kind: str, count: int) -> None:
        """Wait until so many events of a type were received."""
        while [event["type"] for event in self.events].count(kind) < count:
            self.news.clear()
            await self.news.wait()

    def _transcribed(self, event: llm.InputTranscriptionCompleted) -> None:
        if event.is_final:
            self.heard.append(event.transcript)

    async def speak(self, ms: int, *, quiet_ms: int = 0) -> None:
        """A square wave, which scripted engines take for speech, then silence, as fast as it is said."""
        loud = np.where(np.arange(ms * RATE // 1000) // 30 % 2, 9000, -9000).astype("<i2")
        sound = np.concatenate([loud, np.zeros(quiet_ms * RATE // 1000, "<i2")])
        for start in range(0, len(sound), FRAME):
            samples = sound[start : start + FRAME]
            self.session.push_audio(rtc.AudioFrame(samples.tobytes(), RATE, 1, len(samples)))
            await asyncio.sleep(len(samples) / RATE)

    async def write(self, text: str) -> None:
        """Put a message of the user into the conversation."""
        context = self.session.chat_ctx.copy()
        context.add_message(role="user", content=text)
        await self.session.update_chat_ctx(context)

    async def use(self, call: Seen) -> None:
        """Do what the model called for, and put the result into the conversation."""
        output = await get_weather(**json.loads(call["arguments"]))
        context = self.session.chat_ctx.copy()
        context.items.append(
            llm.FunctionCallOutput(call_id=call["call_id"], name=call["name"], output=output, is_error=False)
        )
        await self.session.update_chat_ctx(context)

    def said(self) -> list[Seen]:
        """The conversation as LiveKit has it."""
        return conversation(self.session.chat_ctx.items)

    def answered(self) -> list[Any]:
        """What LiveKit measured of each answer."""
        answers = (metric for metric in self.metrics if metric.type == "realtime_model_metrics")
        return [metric for metric in answers if metric.request_id]


def conversation(items: list[Any]) -> list[Seen]:
    """What was said, called for and given."""
    shown: list[Seen] = []
    for item in items:
        match item:
            case llm.ChatMessage():
                shown.append({"role": item.role, "said": item.text_content})
            case llm.FunctionCall():
                shown.append({"called": item.name, "with": item.arguments})
            case llm.FunctionCallOutput():
                shown.append({"gave": item.output})
    return shown


async def read(generation: llm.GenerationCreatedEvent, *, most: int | None = None) -> Seen:
    """All of an answer; with ``most``, no more than so many samples of its sound."""
    texts: list[str] = []
    modalities: list[list[str]] = []
    samples, loudest = 0, 0
    async for message in generation.message_stream:
        async for frame in message.audio_stream:
            samples += frame.samples_per_channel
            loudest = max(loudest, int(np.abs(np.frombuffer(frame.data, "<i2").astype(int)).max()))
            if most is not None and samples >= most:
                return {"message_id": message.message_id, "samples": samples}
        texts.append("".join([text async for text in message.text_stream]))
        modalities.append(sorted(await message.modalities))
    calls = [
        call.model_dump(include={"call_id", "name", "arguments"}) async for call in generation.function_stream
    ]
    return {
        "texts": texts,
        "modalities": modalities,
        "samples": samples,
        "loudest": loudest,
        "calls": calls,
        "asked_for": generation.user_initiated,
    }


@asynccontextmanager
async def talking(base: str, **options: Any) -> AsyncIterator[Diary]:
    """A session that has begun; ``base`` is all that says that it is not OpenAI's."""
    model = openai.realtime.RealtimeModel(base_url=f"{base}/v1", api_key="anything", **options)
    session = model.session()
    diary = Diary(session)
    logger = logging.getLogger("livekit.agents")
    logger.addHandler(diary)
    try:
        await session.update_instructions("Be brief.")
        yield diary
    except Exception:
        sys.stderr.write(f"{diary.errors}\n{[event['type'] for event in diary.events]}\n")
        raise
    finally:
        await session.aclose()
        await model.aclose()
        logger.removeHandler(diary)


async def voice_turn(base: str) -> Seen:
    """Something is said aloud, and answered aloud."""
    async with talking(base) as diary:
        speaking = asyncio.create_task(diary.speak(600, quiet_ms=2000))
        answer = await read(await diary.generations.get())
        await speaking
        return {
            "errors": diary.errors,
            "said": diary.said(),
            "heard": diary.heard,
            "started": diary.started.is_set(),
            "stopped": diary.stopped.is_set(),
            "tokens": [(metric.input_tokens, metric.output_tokens) for metric in diary.answered()],
            "answer": answer,
        }


async def tool_call(base: str) -> Seen:
    """A written question makes the model use a tool, and its result is answered."""
    async with talking(base) as diary:
        session = diary.session
        await session.update_tools([get_weather])
        await diary.write("What is the weather like?")
        asked = await read(await session.generate_reply())
        (call,) = asked["calls"]
        await diary.use(call)
        answer = await read(await session.generate_reply())
        return {
            "errors": diary.errors,
            "said": diary.said(),
            "asked": asked,
            "answer": answer,
        }


async def spoken_tool_call(base: str) -> Seen:
    """The same, asked aloud: the answer to a turn must be a tool call."""
    async with talking(base, tool_choice="required") as diary:
        session = diary.session
        await session.update_tools([get_weather])
        speaking = asyncio.create_task(diary.speak(600, quiet_ms=2000))
        (call,) = (await read(await diary.generations.get()))["calls"]
        await diary.use(call)
        session.update_options(tool_choice="auto")
        answer = await read(await session.generate_reply(tool_choice="none"))
        await speaking
        return {"errors": diary.errors, "said": diary.said(), "answer": answer}


async def barge_in(base: str) -> Seen:
    """Speaking interrupts the answer, and what was not heard of it is cut off."""
    async with talking(base) as diary:
        session = diary.session
        await diary.write("[[long]]")
        begun = await read(await session.generate_reply(), most=RATE // 2)
        await diary.generations.get()
        speaking = asyncio.create_task(diary.speak(600, quiet_ms=2000))
        await diary.started.wait()
        session.interrupt()
        session.truncate(message_id=begun["message_id"], modalities=["audio", "text"], audio_end_ms=600)
        answer = await read(await diary.generations.get())
        await speaking
        return {
            "errors": diary.errors,
            "answer": answer,
            "truncated": [
                event["audio_end_ms"]
                for event in diary.events
                if event["type"] == "conversation.item.truncated"
            ],
        }


async def bare_reply(base: str) -> Seen:
    """An answer is asked for with no instructions of its own, as after every tool of an AgentSession."""
    async with talking(base, modalities=["text"]) as diary:
        await diary.write("Hello")
        answer = await read(await diary.session.generate_reply())
        return {"errors": diary.errors, "said": diary.said(), "answer": answer}


async def edited_history(base: str) -> Seen:
    """A conversation from elsewhere is taken over, and an item of it changed and one removed."""
    async with talking(base, modalities=["text"]) as diary:
        session = diary.session
        context = llm.ChatContext.empty()
        context.add_message(role="system", content="The caller is called Ada.", id="item_system")
        context.add_message(role="user", content="Hello", id="item_hello")
        context.add_message(role="assistant", content="Good evening.", id="item_evening")
        context.add_message(role="user", content="[[echo:Not this.]]", id="item_last")
        await session.update_chat_ctx(context)
        context = session.chat_ctx.copy()
        context.items = [
            item.model_copy(update={"content": ["[[echo:Still here.]]"]}) if item.id == "item_last" else item
            for item in context.items
            if item.id != "item_evening"
        ]
        await session.update_chat_ctx(context)
        answer = await read(await session.generate_reply())
        return {"errors": diary.errors, "said": diary.said(), "answer": answer}


LOSSES = ("connection", "Connection", "Error in _recv_task")
"""What LiveKit says of a connection that is lost."""


async def reconnection(base: str) -> Seen:
    """The connection breaks; LiveKit makes a new one, and tells the new session what was said."""
    async with relayed(base) as relay, talking(relay.url, modalities=["text"]) as diary:
        session = diary.session
        again = asyncio.Event()
        session.on("session_reconnected", lambda _: again.set())
        await session.update_tools([get_weather])
        await diary.write("What is the weather like?")
        (call,) = (await read(await session.generate_reply()))["calls"]
        await diary.use(call)
        first = await read(await session.generate_reply())
        done = "conversation.item.done"
        retold = [event["type"] for event in diary.events].count(done) + len(diary.said())
        relay.cut()
        await again.wait()
        await diary.until(done, retold)
        await diary.write("[[echo:Still here.]]")
        second = await read(await session.generate_reply())
        return {
            "errors": [error for error in diary.errors if not any(loss in error for loss in LOSSES)],
            "said": diary.said(),
            "answers": [first["texts"], second["texts"]],
            "connections": relay.connections,
        }


# --- a whole agent -------------------------------------------------------------------------------------


class Microphone(io.AudioInput):
    """20 ms every 20 ms: silence, or a square wave, which scripted engines take for speech."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self._loud = np.where(np.arange(FRAME) // 30 % 2, 9000, -9000).astype("<i2").tobytes()
        self.loud_s = 0.0

    async def __anext__(self) -> rtc.AudioFrame:
        await asyncio.sleep(FRAME / RATE)
        speaks = self.loud_s > 0
        self.loud_s -= FRAME / RATE
        return rtc.AudioFrame(self._loud if speaks else bytes(2 * FRAME), RATE, 1, FRAME)


class Loudspeaker(io.AudioOutput):
    """Plays as fast as the sound lasts."""

    def __init__(self) -> None:
        super().__init__(
            label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=RATE
        )
        self.played = 0.0
        self.second = asyncio.Event()
        self._given = 0.0
        self._began = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """A piece of sound to be played."""
        await super().capture_frame(frame)
        loop = asyncio.get_running_loop()
        if not self._given:
            self._began = loop.time()
            self.on_playback_started(created_at=time.time())
            loop.call_later(1, self.second.set)
        self._given += frame.duration

    def flush(self) -> None:
        """That was all of it."""
        super().flush()
        loop = asyncio.get_running_loop()
        if self._given:
            self._end = loop.call_at(self._began + self._given, self._over, False)

    def clear_buffer(self) -> None:
        """Be silent."""
        if self._given:
            self._over(True)

    def _over(self, interrupted: bool) -> None:
        if self._end is not None:
            self._end.cancel()
        position = min(asyncio.get_running_loop().time() - self._began, self._given)
        self._given, self._end = 0.0, None
        self.played += position
        self.on_playback_finished(playback_position=position, interrupted=interrupted)


class Assistant(Agent):
    """Knows the weather."""

    def __init__(self) -> None:
        super().__init__(instructions="Be brief.", tools=[get_weather])


async def agent(base: str) -> Seen:
    """An AgentSession, without a room: greeting, tool, a turn aloud, an interruption."""
    model = openai.realtime.RealtimeModel(base_url=f"{base}/v1", api_key="anything")
    turns: Any = {
        "turn_detection": "realtime_llm",
        "interruption": {"resume_false_interruption": False},
    }
    session: AgentSession[None] = AgentSession(llm=model, vad=None, turn_handling=turns)
    microphone, loudspeaker = Microphone(), Loudspeaker()
    session.input.audio, session.output.audio = microphone, loudspeaker
    errors: list[str] = []
    session.on("error", lambda event: errors.append(repr(event.error)))
    warnings = logging.Handler(logging.WARNING)
    warnings.emit = lambda record: errors.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("livekit.agents").addHandler(warnings)
    await session.start(Assistant(), record=False)
    try:
        await session.generate_reply(user_input="What is the weather like?")
        after_tool = loudspeaker.played
        loudspeaker.second.clear()
        cut = session.generate_reply(user_input="[[long]]")
        await loudspeaker.second.wait()
        answered = asyncio.Event()
        session.on("conversation_item_added", lambda event: event.item.role == "assistant" and answered.set())
        await asyncio.sleep(0)
        microphone.loud_s = 0.6
        await cut
        answered.clear()
        await answered.wait()
        return {
            "errors": errors,
            "said": conversation(session.history.items),
            "after_tool": after_tool,
            "interrupted": cut.interrupted,
        }
    finally:
        await session.aclose()
        await model.aclose()
        logging.getLogger("livekit.agents").removeHandler(warnings)


CHECKS: tuple[Callable[[str], Awaitable[Seen]], ...] = (
    voice_turn,
    tool_call,
    spoken_tool_call,
    barge_in,
    bare_reply,
    edited_history,
    reconnection,
    agent,
)


async def main(base: str) -> None:
    """All checks, one after the other."""
    for check in CHECKS:
        seen: Seen = {"check": check.__name__}
        try:
            async with asyncio.timeout(30):
                seen |= await check(base)
        except Exception:
            seen["failed"] = traceback.format_exc()
        sys.stdout.write(json.dumps(seen) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
