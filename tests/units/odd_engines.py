"""Engines that fail, hang, or take their time until a test lets them go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from units.engines.base import EngineError, Transcription
from units.messages import Finish, Float32, Generate, Message, Token, ToolCall
from units.scope import current_scope


def last_words(request: Generate) -> str:
    last = request.history[-1] if request.history else None
    return last.text if isinstance(last, Message) else ""


class GatedLLM:
    """Says ``before``, waits until it is cancelled or ``gate`` is set, says ``after``.

    A rude one does not hear that it was cancelled, like a model that hangs in native code. Only the
    first request has to wait; ``waiting`` is set once it does.
    """

    def __init__(self, before: str = "", after: str = "And done.", *, rude: bool = False) -> None:
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.requests: list[Generate] = []
        self.closed = 0
        self._before, self._after, self._rude = before, after, rude

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        self.requests.append(request)
        try:
            if self._before:
                yield Token(self._before)
            if len(self.requests) == 1:
                if not self._rude:
                    current_scope().on_cancel(self.gate.set)
                self.waiting.set()
                self.gate.wait()
            yield Token(self._after)
            yield Finish()
        finally:
            self.closed += 1


class FailingLLM:
    """Fails when it is asked to; ``[[bug]]`` is a mistake of ours rather than of the model."""

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        asked = last_words(request)
        yield Token("Well. ")
        if "fail" in asked:
            raise EngineError("the model is not well")
        if "[[bug]]" in asked:
            raise ZeroDivisionError
        yield Token("All is fine.")
        yield Finish()


class ClosedLLM:
    """Fails before its first word."""

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        raise EngineError("the model is not there")


class DyingLLM:
    """Takes its thread with it."""

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        yield Token("Good")
        raise SystemExit


class GatedVad:
    """Hears nothing, and does not even listen until ``gate`` is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def open(self) -> GatedVad:
        return self

    def probability(self, chunk: Float32) -> float:
        self.gate.wait()
        return 0.0

    def reset(self) -> None: ...


class GatedTTS:
    """Makes ``free`` chunks of 20 ms for each text, and the rest of ten once ``gate`` is set."""

    sample_rate = 24_000
    voices = ("tone",)

    def __init__(self, free: int = 5) -> None:
        self.gate = threading.Event()
        self.free = free

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        for n in range(10):
            if n == self.free:
                self.gate.wait()
            yield np.full(480, 0.25, np.float32)


class FailingTTS(GatedTTS):
    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        yield np.full(480, 0.25, np.float32)
        raise EngineError("the voice is gone")


class FailingSTT:
    """Fails the first time."""

    live = False

    def __init__(self) -> None:
        self.calls = 0

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        self.calls += 1
        if self.calls == 1:
            raise EngineError("the recogniser is not well")
        return Transcription("hello again")


class HangingSTT:
    """Once ``hangs`` is set, one call does, until ``gate`` is."""

    live = False

    def __init__(self) -> None:
        self.hangs = False
        self.gate = threading.Event()

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        if not self.hangs:
            return Transcription("hello")
        self.hangs = False
        self.gate.wait()
        return Transcription("a secret")


class RememberingLLM:
    """Answers "Yes." and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Generate] = []

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        self.requests.append(request)
        yield Token("Yes.")
        yield Finish()
