"""A client that talks to one unit in the same process, and writes down all that happens.

It is the transport and the outbound track at once: it gets the events, pulls the speech, and can wait
for either.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.protocol.tap import Problems, problems_of
from units import Engines, EngineSettings, Observer, PipelineConfig, PipelineUnit
from units.engines.scripted import ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedTurn, ScriptedVad
from units.line import Line
from units.messages import Audio, End, Envelope, Float32
from units.playout import Heard, Playout
from units.scope import CancelScope

Json = dict[str, Any]

TIMEOUT = 10.0
"""Seconds after which something that never happens fails a test."""

_SCRIPTED = EngineSettings("scripted")


def scripted(**others: Any) -> Engines:
    """Scripted engines, except those given as ``vad``, ``turn``, ``stt``, ``llm`` or ``tts``."""
    engines: dict[str, Any] = {
        "vad": ScriptedVad(_SCRIPTED),
        "turn": ScriptedTurn(_SCRIPTED),
        "stt": ScriptedSTT(_SCRIPTED),
        "llm": ScriptedLLM(_SCRIPTED),
        "tts": ScriptedTTS(_SCRIPTED),
    }
    return Engines(**(engines | others))


def loud(ms: int, level: float = 0.3) -> Float32:
    """A square wave at 16 kHz, which scripted engines take for speech."""
    n = np.arange(ms * 16)
    return np.where(n // 20 % 2, level, -level).astype(np.float32)


def quiet(ms: int) -> Float32:
    return np.zeros(ms * 16, np.float32)


class WatchedPlayout(Playout):
    """Writes down what goes in, what comes out and what is forgotten."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__(sample_rate)
        self.log: list[tuple[Any, ...]] = []

    def write(self, tag: str, audio: Audio) -> None:
        self.log.append(("write", tag, audio.text, audio.samples))
        super().write(tag, audio)

    def flush(self) -> list[Heard]:
        self.log.append(("flush",))
        return super().flush()


class WatchedUnit(PipelineUnit):
    """A unit whose deliveries can be waited for."""

    def __init__(self, engines: Engines | None = None, config: PipelineConfig | None = None) -> None:
        engines = engines or scripted()
        super().__init__(0, engines, config or PipelineConfig(apology=""))
        self.output_queue: WatchedPlayout = WatchedPlayout(engines.tts.sample_rate)
        self.ends: Counter[CancelScope] = Counter()
        self.submitted: list[CancelScope] = []
        self._news = asyncio.Event()

    def submit(self, scope: CancelScope, work: Any, *, aside: bool = False) -> None:
        self.submitted.append(scope)
        super().submit(scope, work, aside=aside)

    def _receive(self, envelope: Envelope) -> None:
        self.ends[envelope.scope] += isinstance(envelope.body, End)
        super()._receive(envelope)
        self.tell()

    def tell(self) -> None:
        """Something happened that somebody may be waiting for."""
        self._news.set()

    async def eventually(self, fact: Callable[[], object]) -> None:
        """Wait until ``fact()`` is true; it is looked at again after every delivery."""
        async with asyncio.timeout(TIMEOUT):
            while not fact():
                self._news.clear()
                await self._news.wait()

    async def drained(self) -> None:
        await self.eventually(lambda: self.session is None)

    async def finished(self) -> list[str]:
        """Stop and join; names of the threads that are still alive."""
        self.stop()
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self.join, loop.time() + TIMEOUT)

    @property
    def lines(self) -> tuple[Line, Line]:
        return self._started(self._ears), self._started(self._mouth)


class Caller:
    """A client on ``unit``, which must be free; ``settings`` are those that the session begins with."""

    def __init__(self, unit: WatchedUnit, *settings: Json, observers: Sequence[Observer] = ()) -> None:
        self.unit = unit
        self.events: list[Json] = []
        self.closed: list[str] = []
        self.log = unit.output_queue.log = []
        self.session = unit.open(self, settings, observers)

    # --- the transport ---------------------------------------------------------------------------

    def send(self, event: Json) -> None:
        self.events.append(event)
        self.log.append(("event", event))
        self.unit.tell()

    def close(self, reason: str) -> None:
        self.closed.append(reason)
        self.unit.tell()

    # --- the person ------------------------------------------------------------------------------

    def do(self, type: str, **members: Any) -> None:
        """Send a client event."""
        self.session.handle(json.dumps({"type": type, **members}))

    def configure(self, **session: Any) -> None:
        self.do("session.update", session={"type": "realtime", **session})

    def write(self, text: str, **response: Any) -> None:
        """A text turn: an item and a request for an answer."""
        content = [{"type": "input_text", "text": text}]
        self.do("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        self.do("response.create", **({"response": response} if response else {}))

    def say(self, *sounds: Float32) -> None:
        for sound in sounds:
            self.session.hear(sound)

    def listen(self, ms: int) -> list[int]:
        """Pull up to ``ms`` of speech, in frames of 20 ms; the samples, without the padding at the end."""
        heard: list[int] = []
        n = self.unit.output_queue.sample_rate // 50
        for _ in range(ms // 20):
            before = self.unit.output_queue.waiting
            frame = self.unit.output_queue.pull(n)
            if frame is None:
                break
            heard += frame[: before - self.unit.output_queue.waiting].tolist()
        self.log.append(("heard", heard))
        return heard

    # --- what came of it -------------------------------------------------------------------------

    @property
    def problems(self) -> Problems:
        return problems_of(self)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def of(self, type: str) -> list[Json]:
        return [event for event in self.events if event["type"] == type]

    @property
    def errors(self) -> list[tuple[Any, Any]]:
        """Code and param of each error."""
        return [(event["error"]["code"], event["error"]["param"]) for event in self.of("error")]

    @property
    def responses(self) -> list[Json]:
        """The responses that are done."""
        return [event["response"] for event in self.of("response.done")]

    async def got(self, type: str, count: int = 1) -> Json:
        """Wait for the ``count``-th event of this type."""
        await self.unit.eventually(lambda: len(self.of(type)) >= count)
        return self.of(type)[count - 1]

    async def hang_up(self) -> None:
        """Close the session, and see to it that all went by the rules."""
        self.session.close()
        await self.unit.drained()
        assert self.problems == []


def said(response: Json) -> str:
    """What the messages of a response say."""
    messages = (item for item in response["output"] if item["type"] == "message")
    parts = (part for item in messages for part in item["content"])
    return "".join(part.get("transcript", part.get("text")) for part in parts)
