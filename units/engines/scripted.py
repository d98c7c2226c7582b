"""Scripted engines: instant and deterministic, for tests, demonstrations and measuring everything else.

They hold no model, so that what a test or a benchmark sees is the pipeline alone. Each is also the
shortest example of the protocol that it implements.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from units.engines.base import EngineError, EngineSettings, Transcription
from units.messages import Finish, Float32, Generate, Message, Token, Tool, ToolCall, ToolResult

HEARD = "hello there this is a voice test"
"""What the recogniser understands, whatever is said."""

ANSWER = "Thank you, I heard all of that very clearly."
"""What the language model says unless the caller asks for something else; 44 characters."""

LONG_ANSWER = (
    "This is the first of five sentences that I am going to say. "
    "The second one goes on a little longer, so that there is time to interrupt me. "
    "In the third sentence nothing happens either. "
    "The fourth sentence is almost the end of this speech. "
    "And with the fifth sentence I have come to the end."
)
THOUGHT = "<think>The caller must never hear this.</think>"

CHUNK_SAMPLES = 512
BLOCK_SAMPLES = 128
SPEECH_DBFS = -45.0
FULL_VOICE_DBFS = -20.0
SOUND_DBFS = -60.0
TONE_RATE = 24_000
TONE_HZ = 300.0
TONE_AMPLITUDE = 0.3
SECONDS_PER_CHARACTER = 0.06
CHUNK_SECONDS = 0.32


def level_dbfs(samples: Float32) -> float:
    """RMS level of ``samples`` (float32 in [-1, 1]) in dB relative to full scale; -inf for silence."""
    rms = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) if samples.size else 0.0
    return 20.0 * math.log10(rms) if rms > 0.0 else -math.inf


class ScriptedVoiceStream:
    """Hears speech in whatever is loud."""

    def probability(self, chunk: Float32) -> float:
        """1.0 when ``chunk`` (float32 [512] at 16 kHz) is louder than -45 dBFS, else 0.0."""
        if chunk.shape != (CHUNK_SAMPLES,):
            raise ValueError(f"a chunk has shape ({CHUNK_SAMPLES},), not {chunk.shape}")
        return 1.0 if level_dbfs(chunk) > SPEECH_DBFS else 0.0

    def reset(self) -> None:
        """There is nothing to forget."""


class ScriptedVad:
    """Voice activity by level."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def open(self) -> ScriptedVoiceStream:
        """A fresh stream."""
        return ScriptedVoiceStream()


class ScriptedTurn:
    """Whoever falls silent at full voice has finished; whoever grows quiet first has not."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def finished(self, samples: Float32) -> float:
        """1.0 when the last of ``samples`` above -45 dBFS is above -20 dBFS, else 0.0."""
        power = np.square(samples[len(samples) % BLOCK_SAMPLES :], dtype=np.float64)
        levels = np.sqrt(power.reshape(-1, BLOCK_SAMPLES).mean(axis=1))
        audible = levels[levels > 10 ** (SPEECH_DBFS / 20)]
        return 1.0 if len(audible) and audible[-1] > 10 ** (FULL_VOICE_DBFS / 20) else 0.0


class ScriptedSTT:
    """Understands :data:`HEARD` in any sound above -60 dBFS, and nothing in silence."""

    live = True

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        """:data:`HEARD`, or "" when ``samples`` (float32 at 16 kHz) are silent."""
        text = HEARD if level_dbfs(samples) > SOUND_DBFS else ""
        return Transcription(text, language or self.settings.language or "en")


class ScriptedLLM:
    """Answers by rule, word by word; a word counts as one token.

    A tool result is reported; ``[[fail]]`` raises, ``[[long]]`` gives five sentences, ``[[echo:TEXT]]``
    gives TEXT, ``[[think]]`` puts a thought before the answer; "weather", ``tool_choice="required"``
    or the name of a tool calls it; everything else gets :data:`ANSWER`.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        """Stream the answer to the last item of the history. ``[[fail]]`` raises EngineError."""
        used = sum(len(_words(_text(item))) for item in request.history) + len(_words(request.instructions))
        call = _call(request)
        if call is not None:
            yield call
            yield Finish("stop", used, len(_words(call.arguments)))
            return
        words = _words(_answer(request))
        limit = len(words) if request.max_output_tokens is None else request.max_output_tokens
        for word in words[:limit]:
            yield Token(word)
        yield Finish("length" if limit < len(words) else "stop", used, min(limit, len(words)))


class ScriptedTTS:
    """Speaks every text as a steady 300 Hz tone, 0.06 s a character."""

    sample_rate = TONE_RATE
    voices = ("tone",)

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        """One tone of ``0.06 / speed`` seconds per character, in chunks of 0.32 s, phase-continuous."""
        spoken = text.strip()
        if not any(map(str.isalnum, spoken)):
            return
        total = round(len(spoken) * SECONDS_PER_CHARACTER * TONE_RATE / speed)
        step = round(CHUNK_SECONDS * TONE_RATE)
        for start in range(0, total, step):
            n = np.arange(start, min(start + step, total))
            yield (TONE_AMPLITUDE * np.sin(2 * np.pi * TONE_HZ * n / TONE_RATE)).astype(np.float32)


def _answer(request: Generate) -> str:
    last = request.history[-1] if request.history else None
    if isinstance(last, ToolResult):
        return f"The tool said: {last.output}."
    asked = _asked(request)
    if "[[fail]]" in asked:
        raise EngineError("The scripted language model was told to fail.")
    if "[[long]]" in asked:
        return LONG_ANSWER
    if echo := re.search(r"\[\[echo:(.*?)\]\](?!\])", asked, re.DOTALL):
        return echo[1]
    return f"{THOUGHT}{ANSWER}" if "[[think]]" in asked else ANSWER


def _call(request: Generate) -> ToolCall | None:
    if not request.tools or request.tool_choice == "none":
        return None
    if request.history and isinstance(request.history[-1], ToolResult):
        return None
    asked = _asked(request)
    forced = request.tool_choice != "auto"
    if not forced and ("weather" not in asked.lower() or "[[" in asked):
        return None
    named = (tool for tool in request.tools if tool.name == request.tool_choice)
    tool = next(named, request.tools[0])
    count = sum(isinstance(item, ToolCall) for item in request.history)
    return ToolCall(f"call_scripted_{count + 1}", tool.name, json.dumps(_arguments(tool)))


def _arguments(tool: Tool) -> dict[str, Any]:
    properties = json.loads(tool.parameters or "{}").get("properties", {})
    return {name: _value(name, schema) for name, schema in properties.items()}


def _value(name: str, schema: dict[str, Any]) -> object:
    if choices := schema.get("enum"):
        return choices[0]
    text = "Oslo" if name.lower() in {"city", "location", "place", "town"} else "example"
    by_type = {"number": 1, "integer": 1, "boolean": True, "array": [], "object": {}, "null": None}
    return by_type.get(str(schema.get("type", "string")), text)


def _asked(request: Generate) -> str:
    """The last thing that the user said."""
    said = (
        item.text for item in reversed(request.history) if isinstance(item, Message) and item.role == "user"
    )
    return next(said, "")


def _text(item: Message | ToolCall | ToolResult) -> str:
    match item:
        case Message():
            return item.text
        case ToolCall():
            return item.arguments
        case ToolResult():
            return item.output


def _words(text: str) -> list[str]:
    """``text`` in pieces of one word each, with the space before it; they concatenate to the text."""
    return re.findall(r"\s*\S+(?:\s+$)?|\s+$", text)
