"""Drives the OpenAI realtime service of Pipecat, unmodified, in a pipeline as Pipecat's own example makes it.

    python pipecat_client.py http://127.0.0.1:8080

It runs in an environment of its own, with pipecat_requirements.txt. A transport without a network takes the
place of the caller: a microphone that is always on, and a loudspeaker that plays in real time. Prints one
line of JSON for each check: its name, what was seen, and all that Pipecat warned of. Judging that is left to
the caller.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from loguru import logger
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.audio.vad.vad_analyzer import VADAnalyzer
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
    LLMTextFrame,
    LLMUpdateSettingsFrame,
    MetricsFrame,
    OutputAudioRawFrame,
    StartFrame,
    TranscriptionFrame,
    TTSTextFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import LLMUsageMetricsData
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.events import (
    AudioConfiguration,
    AudioInput,
    InputAudioNoiseReduction,
    InputAudioTranscription,
    SemanticTurnDetection,
    SessionProperties,
)
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.turns.user_start import VADUserTurnStartStrategy
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

sys.path.insert(0, str(Path(__file__).parent))
from relay import relayed

RATE_IN = 16_000
RATE_OUT = 24_000
PACKET_S = 0.02
ADVICE = ("is not emitting turn frames", "realtime mode — mutated turn strategies")
"""Of the warnings, those that every pipeline gets which detects turns itself."""

Seen = dict[str, Any]

WEATHER = FunctionSchema(
    name="get_weather",
    description="What the weather is like in a city.",
    properties={"city": {"type": "string", "description": "The name of the city."}},
    required=["city"],
)


class Loudspeaker(BaseOutputTransport):
    """Plays as fast as the sound lasts, and keeps it."""

    def __init__(self) -> None:
        super().__init__(TransportParams(audio_out_enabled=True))
        self.sound = bytearray()
        self.second = asyncio.Event()

    async def start(self, frame: StartFrame) -> None:
        """The pipeline runs."""
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """A piece of 40 ms."""
        self.sound += frame.audio
        if len(self.sound) > 2 * RATE_OUT:
            self.second.set()
        await asyncio.sleep(len(frame.audio) / 2 / frame.sample_rate)
        return True

    def samples(self) -> tuple[int, int]:
        """How much was played, from the first sound to the last, and the loudest of it."""
        played = np.abs(np.frombuffer(bytes(self.sound), "<i2").astype(int))
        loud = np.flatnonzero(played > 100)
        return (int(loud[-1] - loud[0]) + 1, int(played.max())) if loud.size else (0, 0)


class Level(VADAnalyzer):
    """Hears speech in whatever is loud."""

    def num_frames_required(self) -> int:
        """Of 32 ms each."""
        return RATE_IN * 32 // 1000

    def voice_confidence(self, buffer: bytes) -> float:
        """Certain, or none."""
        return float(np.abs(np.frombuffer(buffer, "<i2").astype(int)).max() > 1000)


class Diary(BaseObserver):
    """All that went through the pipeline, each frame once, also those that are sent both ways."""

    def __init__(self) -> None:
        super().__init__(observe_every_push=False)
        self.frames: list[Frame] = []
        self._news = asyncio.Condition()

    async def on_push_frame(self, data: FramePushed) -> None:
        """A frame is on its way."""
        if data.direction is FrameDirection.UPSTREAM and data.frame.broadcast_sibling_id is not None:
            return
        async with self._news:
            self.frames.append(data.frame)
            self._news.notify_all()

    def all(self, kind: type[Any]) -> list[Any]:
        return [frame for frame in self.frames if isinstance(frame, kind)]

    async def until(self, kind: type[Any], count: int = 1) -> None:
        """Wait until there were so many frames of a kind."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.all(kind)) >= count)

    def texts(self, kind: type[Any]) -> str:
        return "".join(frame.text for frame in self.all(kind))


def not_advice(record: Any) -> bool:
    return not any(advice in record["message"] for advice in ADVICE)


class Call:
    """A running pipeline and its caller."""

    def __init__(
        self,
        base: str,
        context: LLMContext,
        properties: SessionProperties,
        own_turns: LLMUserAggregatorParams | None,
    ) -> None:
        self.context = context
        self.properties = properties
        self.diary = Diary()
        self.loudspeaker = Loudspeaker()
        self.errors: list[str] = []
        self.used: list[Any] = []
        self.items: list[Any] = []
        self._loud_s = 0.0
        self.llm = OpenAIRealtimeLLMService(
            api_key="anything",
            base_url=f"{base.replace('http', 'ws', 1)}/v1/realtime",
            settings=OpenAIRealtimeLLMService.Settings(
                system_instruction="Be brief.", session_properties=properties
            ),
        )
        self.llm.register_function("get_weather", self._weather)
        self.llm.add_event_handler("on_conversation_item_created", self._item)
        self.said: asyncio.Queue[str] = asyncio.Queue()
        user, assistant = LLMContextAggregatorPair(context, user_params=own_turns)
        assistant.add_event_handler("on_assistant_turn_stopped", self._said)
        self.worker = PipelineWorker(
            Pipeline([user, self.llm, self.loudspeaker, assistant]),
            params=PipelineParams(
                audio_in_sample_rate=RATE_IN,
                audio_out_sample_rate=RATE_OUT,
                enable_metrics=True,
                enable_usage_metrics=True,
            ),
            observers=[self.diary],
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

    async def _weather(self, params: FunctionCallParams) -> None:
        self.used.append(dict(params.arguments))
        await params.result_callback(4)

    async def _said(self, _aggregator: Any, message: Any) -> None:
        if message.content:
            self.said.put_nowait(message.content)

    async def _item(self, _llm: Any, _id: str, item: Any) -> None:
        self.items.append(item)

    async def microphone(self) -> None:
        """20 ms every 20 ms: silence, or a square wave, which scripted engines take for speech."""
        count = int(RATE_IN * PACKET_S)
        loud = np.where(np.arange(count) // 20 % 2, 9000, -9000).astype("<i2").tobytes()
        while True:
            speaks = self._loud_s > 0
            self._loud_s -= PACKET_S
            packet = InputAudioRawFrame(loud if speaks else bytes(2 * count), RATE_IN, 1)
            await self.worker.queue_frame(packet)
            await asyncio.sleep(PACKET_S)

    def speak(self, seconds: float) -> None:
        self._loud_s = seconds

    async def ask(self) -> None:
        """Have the model answer the context."""
        await self.worker.queue_frames([LLMRunFrame()])

    async def require_a_tool(self) -> None:
        """From now on, every answer must use a tool."""
        properties = self.properties.model_copy(update={"tool_choice": "required"})
        delta = OpenAIRealtimeLLMService.Settings(session_properties=properties)
        await self.worker.queue_frame(LLMUpdateSettingsFrame(delta=delta))

    def seen(self) -> Seen:
        """What there is to be judged of every call."""
        samples, loudest = self.loudspeaker.samples()
        usage = [data for frame in self.diary.all(MetricsFrame) for data in frame.data]
        return {
            "errors": self.errors + [frame.error for frame in self.diary.all(ErrorFrame)],
            "heard": [frame.text for frame in self.diary.all(TranscriptionFrame)],
            "spoken": self.diary.texts(TTSTextFrame),
            "written": self.diary.texts(LLMTextFrame),
            "samples": samples,
            "loudest": loudest,
            "used": self.used,
            "turns": [
                len(self.diary.all(UserStartedSpeakingFrame)),
                len(self.diary.all(UserStoppedSpeakingFrame)),
            ],
            "interruptions": len(self.diary.all(InterruptionFrame)),
            "tokens": [
                [data.value.prompt_tokens, data.value.completion_tokens]
                for data in usage
                if isinstance(data, LLMUsageMetricsData)
            ],
            "context": [shown(message) for message in self.context.get_messages()],
        }


def shown(message: Any) -> Seen:
    """A message of the context, short."""
    if calls := message.get("tool_calls"):
        return {"called": [[call["function"]["name"], call["function"]["arguments"]] for call in calls]}
    return {"role": message["role"], "said": message["content"]}


@asynccontextmanager
async def talking(
    base: str, *messages: Any, own_turns: LLMUserAggregatorParams | None = None, **properties: Any
) -> AsyncIterator[Call]:
    """A call with these messages in its context; ``base`` is all that says that it is not OpenAI's."""
    tools = ToolsSchema(standard_tools=[WEATHER])
    audio = AudioConfiguration(
        input=AudioInput(
            transcription=InputAudioTranscription(),
            turn_detection=SemanticTurnDetection() if own_turns is None else False,
            noise_reduction=InputAudioNoiseReduction(type="near_field"),
        )
    )
    context = LLMContext(list(messages), tools)
    call = Call(base, context, SessionProperties(audio=audio, **properties), own_turns)
    sink = logger.add(
        lambda text: call.errors.append(str(text)), level="WARNING", format="{message}", filter=not_advice
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(call.worker)
    running = asyncio.create_task(runner.run())
    try:
        await call.diary.until(StartFrame)
        microphone = asyncio.create_task(call.microphone())
        try:
            yield call
        except BaseException:
            sys.stderr.write(f"{call.seen()}\n")
            raise
        finally:
            microphone.cancel()
    finally:
        await call.worker.cancel()
        await running
        logger.remove(sink)


async def voice_turn(base: str) -> Seen:
    """The agent greets; then something is said aloud, and answered aloud."""
    async with talking(base, {"role": "developer", "content": "Say hello!"}) as call:
        await call.ask()
        await call.said.get()
        greeting = call.seen()
        call.loudspeaker.sound.clear()
        call.speak(0.6)
        await call.said.get()
        return {"greeting": greeting, **call.seen()}


async def written_turn(base: str) -> Seen:
    """A written message is answered in writing."""
    hello = {"role": "user", "content": "Hello"}
    async with talking(base, hello, output_modalities=["text"]) as call:
        await call.ask()
        await call.said.get()
        return call.seen()


async def tool_call(base: str) -> Seen:
    """A written question makes the model use a tool, and its result is answered."""
    async with talking(base, {"role": "user", "content": "What is the weather like?"}) as call:
        await call.ask()
        await call.said.get()
        return call.seen()


async def spoken_tool_call(base: str) -> Seen:
    """The same, asked aloud: the answer to a turn must be a tool call."""
    async with talking(base, {"role": "developer", "content": "Say hello!"}) as call:
        await call.ask()
        await call.said.get()
        await call.require_a_tool()
        call.loudspeaker.sound.clear()
        call.speak(0.6)
        await call.said.get()
        return call.seen()


async def barge_in(base: str) -> Seen:
    """Speaking interrupts the answer, and what was not heard of it is cut off."""
    async with talking(base, {"role": "user", "content": "[[long]]"}) as call:
        await call.ask()
        await call.loudspeaker.second.wait()
        call.speak(0.6)
        await call.said.get()
        played = call.loudspeaker.samples()[0]
        await call.said.get()
        cut = next(item for item in call.items if item.role == "assistant")
        kept = await call.llm.retrieve_conversation_item(cut.id)
        return {**call.seen(), "played": played, "kept": kept.content[0].transcript}


async def own_turns(base: str) -> Seen:
    """Pipecat detects turns itself: it clears, commits and asks for an answer."""
    params = LLMUserAggregatorParams(
        vad_analyzer=Level(),
        user_turn_strategies=UserTurnStrategies(
            start=[VADUserTurnStartStrategy()], stop=[SpeechTimeoutUserTurnStopStrategy()]
        ),
    )
    async with talking(base, {"role": "developer", "content": "Say hello!"}, own_turns=params) as call:
        await call.ask()
        await call.said.get()
        call.speak(0.6)
        await call.said.get()
        return call.seen()


async def reconnection(base: str) -> Seen:
    """The connection breaks; the service is told to begin again, and tells the new session what was said."""
    async with relayed(base) as relay, talking(relay.url, {"role": "user", "content": "Hello"}) as call:
        await call.ask()
        await call.said.get()
        relay.cut()
        await call.llm.reset_conversation()
        await call.llm._create_response()  # as its own example of a conversation that is loaded again does
        await call.said.get()
        call.speak(0.6)
        await call.said.get()
        seen = call.seen()
        losses = [error for error in seen["errors"] if "no close frame received" not in error]
        return {**seen, "errors": losses, "connections": relay.connections}


CHECKS: tuple[Callable[[str], Awaitable[Seen]], ...] = (
    voice_turn,
    written_turn,
    tool_call,
    spoken_tool_call,
    barge_in,
    own_turns,
    reconnection,
)


async def main(base: str) -> None:
    """All checks, one after the other."""
    logger.remove()
    for check in CHECKS:
        seen: Seen = {"check": check.__name__}
        try:
            async with asyncio.timeout(15):
                seen |= await check(base)
        except Exception:
            seen["failed"] = traceback.format_exc()
        sys.stdout.write(json.dumps(seen) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
