"""The server with a stop-watch around its engines: ``python -m benchmarks.timed_server MARKS serve ...``.

For every engine NAME but the voice activity detectors there is one more, ``timed-NAME``, that notes when it
was asked, when its first result came and when it was done, as JSON lines in the file MARKS. The times are
``time.monotonic()``, which all processes of a machine share. Nothing else about the server changes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from server.__main__ import main
from units.engines import registry
from units.engines.base import EngineSettings, LanguageModel, SpeechToText, TextToSpeech, Transcription
from units.messages import Finish, Float32, Generate, Token, ToolCall

PREFIX = "timed-"

Mark = Callable[[str, int], None]
"""Notes that something happened just now, and to how many samples or characters (0: does not matter)."""


class _Timed:
    """Passes on whatever is not timed."""

    def __init__(self, engine: Any, mark: Mark) -> None:
        self._engine = engine
        self._mark = mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _stream(self, items: Iterator[Any], size: int = 0) -> Iterator[Any]:
        self._mark("asked", size)
        first = True
        try:
            for item in items:
                if first:
                    self._mark("first", 0)
                    first = False
                yield item
        finally:
            self._mark("done", 0)
            if (close := getattr(items, "close", None)) is not None:
                close()


class TimedSpeechToText(_Timed):
    """Notes when an utterance came and when its words were known."""

    _engine: SpeechToText

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        self._mark("asked", len(samples))
        try:
            return self._engine.transcribe(samples, language=language)
        finally:
            self._mark("done", 0)


class TimedLanguageModel(_Timed):
    """Notes when a prompt came, its first token and its last."""

    _engine: LanguageModel

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        return self._stream(self._engine.generate(request))


class TimedTextToSpeech(_Timed):
    """Notes when a sentence came, its first sound and its last."""

    _engine: TextToSpeech

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        return self._stream(self._engine.synthesize(text, voice=voice, speed=speed), len(text))


TIMED: dict[str, type[_Timed]] = {
    "stt": TimedSpeechToText,
    "llm": TimedLanguageModel,
    "tts": TimedTextToSpeech,
}


def install(marks: Path) -> None:
    """Make every engine available as ``timed-NAME``, too."""
    file = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for kind, timed in TIMED.items():
        for name in registry.available(kind):
            registry.register(kind, PREFIX + name, _factory(kind, name, timed, file))


def _factory(kind: str, name: str, timed: type[_Timed], file: int) -> registry.Factory:
    def mark(what: str, size: int) -> None:
        line = json.dumps({"at": time.monotonic(), "engine": kind, "what": what, "size": size})
        os.write(file, f"{line}\n".encode())

    def load(settings: EngineSettings) -> _Timed:
        return timed(registry.load(kind, replace(settings, name=name)), mark)

    return load


if __name__ == "__main__":
    install(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
