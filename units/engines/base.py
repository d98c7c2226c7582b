"""What an engine is: a model, loaded once per process and shared by all units.

Each protocol below has one blocking method or one generator. Stages call it on a thread of their
own, many units at a time: an engine that cannot run concurrently takes a lock of its own. Nobody who
writes an engine needs to know about queues or cancellation: when a response is cancelled the
generator is closed (``GeneratorExit`` at its ``yield``). An engine that blocks in a network read
registers ``units.scope.current_scope().on_cancel(stream.close)`` to be woken up.

Constructing an engine loads it. What the person at the terminal can mend (a missing library, model,
key or GPU) is raised as :class:`EngineUnavailable` with one sentence that says what to do. What goes
wrong later is an :class:`EngineError`: that response fails, the next one works.

Optional on any engine: ``warm()``, called once after loading, and ``close()``, called when the server stops.
Optional on a language model: ``prepare(request)``, called while the caller is still speaking with what the
next request will probably begin with, for a model that can read ahead; blocking, cancelled like ``generate``;
and ``context_tokens: int``, what it can read, so that a long conversation is shortened before it is given it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from units.messages import Finish, Float32, Generate, Token, ToolCall


class EngineError(Exception):
    """The model's fault: one response fails. ``str(error)`` is one sentence for people."""


class EngineUnavailable(EngineError):
    """The engine cannot be loaded. ``str(error)`` is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What a person chose for one engine. Frozen; empty means the engine's default."""

    name: str
    """Name in the registry, such as ``faster-whisper``."""
    model: str = ""
    """Name of a model in the store, a hub id, or a local path."""
    base_url: str = ""
    """For engines that talk to a server: up to and including ``/v1``."""
    api_key: str = ""
    language: str = ""
    """BCP 47 or ISO 639-1; empty: let the model decide, or its default."""
    voice: str = ""
    context: int = 0
    """For language models: tokens that it is to be shown at most; 0: the engine's default."""
    device: str = "auto"
    """``auto`` (CUDA when there is one), ``cpu`` or ``cuda``."""
    models_dir: Path | None = None
    """The model store's folder; None: its default."""


@dataclass(frozen=True, slots=True)
class Transcription:
    """What was said. ``language`` is ISO 639-1 when the model knows it."""

    text: str
    language: str | None = None


class VoiceStream(Protocol):
    """The recurrent state of one stream of sound. Private to one unit."""

    def probability(self, chunk: Float32) -> float:
        """Probability of speech in ``chunk``: float32 [512] at 16 kHz. Other sizes raise ValueError."""

    def reset(self) -> None:
        """Forget what was heard."""


@runtime_checkable
class VoiceActivityDetector(Protocol):
    """Tells speech from everything else."""

    def open(self) -> VoiceStream:
        """A fresh stream, sharing the weights."""


@runtime_checkable
class TurnDetector(Protocol):
    """Tells who has finished from who has only paused."""

    def finished(self, samples: Float32) -> float:
        """Probability that the speaker has finished; blocking.

        ``samples`` are the turn so far (float32 mono at 16 kHz, any length), up to and including the short
        silence after which it is asked. Called by the thread that listens: sound waits meanwhile, so it
        should take a fraction of a second. Raises EngineError; silence alone ends the turn then.
        """


@runtime_checkable
class SpeechToText(Protocol):
    """Turns an utterance into words."""

    live: bool
    """Cheap enough to be run on unfinished speech about once a second, for live transcripts."""

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        """The words in ``samples`` (float32 mono at 16 kHz, any length); blocking.

        Text is stripped; "" when nothing was said (silence, noise). Raises EngineError.
        """


@runtime_checkable
class LanguageModel(Protocol):
    """Answers."""

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        """Stream the answer: tokens, complete tool calls, and one Finish at the end.

        Closing the iterator cancels the model. Raises EngineError.
        """


@runtime_checkable
class TextToSpeech(Protocol):
    """Speaks."""

    sample_rate: int
    """Rate of everything that ``synthesize`` yields, in Hz."""
    voices: tuple[str, ...]
    """Voices it knows, the default first. Empty when only the server behind it knows."""
    # Optional: ``slow: bool``. True when making the sound takes a good part of the time that it is heard: the
    # engine is then given short texts at first, and longer ones later.

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        """Yield float32 mono chunks in [-1, 1] as they are made, in order.

        An unknown or empty voice falls back to the default one. ``text`` without anything to
        pronounce yields nothing. Closing the iterator cancels. Raises EngineError.
        """
