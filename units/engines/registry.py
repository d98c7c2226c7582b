"""Engines by name: the built-in ones, those registered at run time, and those of other packages.

A package adds an engine with an entry point in the group ``duologue.vad``, ``duologue.turn``,
``duologue.stt``, ``duologue.llm`` or ``duologue.tts``; its object is called with one
:class:`~units.engines.base.EngineSettings` and returns the loaded engine::

    [project.entry-points."duologue.tts"]
    parrot = "parrot.engine:Parrot"
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from units.engines.base import EngineSettings, EngineUnavailable

KINDS = ("vad", "turn", "stt", "llm", "tts")

Factory = Callable[[EngineSettings], Any]

BUILT_IN: dict[str, dict[str, str]] = {
    "vad": {
        "silero": "units.engines.silero:SileroVad",
        "scripted": "units.engines.scripted:ScriptedVad",
    },
    "turn": {
        "smart-turn": "units.engines.smart_turn:SmartTurn",
        "scripted": "units.engines.scripted:ScriptedTurn",
        "none": "units.engines.registry:nothing",
    },
    "stt": {
        "faster-whisper": "units.engines.faster_whisper:FasterWhisper",
        "whisper": "units.engines.whisper:Whisper",
        "openai": "units.engines.openai_stt:OpenAITranscription",
        "scripted": "units.engines.scripted:ScriptedSTT",
    },
    "llm": {
        "llama-cpp": "units.engines.llama_cpp:LlamaCpp",
        "chat-completions": "units.engines.chat_completions:ChatCompletions",
        "responses": "units.engines.responses:Responses",
        "transformers": "units.engines.transformers_llm:TransformersLLM",
        "scripted": "units.engines.scripted:ScriptedLLM",
    },
    "tts": {
        "kokoro": "units.engines.kokoro:Kokoro",
        "openai": "units.engines.openai_tts:OpenAISpeech",
        "scripted": "units.engines.scripted:ScriptedTTS",
    },
}

EXTRAS = {("stt", "whisper"): "transformers", ("llm", "transformers"): "transformers"}
"""What has to be installed for those engines beside the project itself."""

_registered: dict[tuple[str, str], Factory] = {}


def register(kind: str, name: str, factory: Factory) -> None:
    """Make ``factory`` available as engine ``name``. Raises ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    _registered[kind, name] = factory


def available(kind: str) -> list[str]:
    """Names that :func:`load` accepts for ``kind``, sorted."""
    third_party = (point.name for point in _entry_points(kind))
    mine = (name for known, name in _registered if known == kind)
    return sorted({*BUILT_IN[kind], *third_party, *mine})


@cache
def _entry_points(kind: str) -> EntryPoints:
    """Looking through all that is installed takes a tenth of a second."""
    return entry_points(group=f"duologue.{kind}")


def load(kind: str, settings: EngineSettings) -> Any:
    """The engine ``settings.name``, loaded. Blocks. Raises EngineUnavailable saying what to do."""
    factory = _factory(kind, settings.name)
    return factory(settings)


def nothing(settings: EngineSettings) -> None:
    """The engine of a kind that one can do without."""


def _factory(kind: str, name: str) -> Factory:
    if (kind, name) in _registered:
        return _registered[kind, name]
    for point in _entry_points(kind):
        if point.name == name:
            return _imported(kind, name, point.load)
    if name in BUILT_IN[kind]:
        module, _, attribute = BUILT_IN[kind][name].partition(":")
        return _imported(kind, name, lambda: getattr(importlib.import_module(module), attribute))
    names = ", ".join(available(kind))
    raise EngineUnavailable(f"There is no {kind} engine named {name!r}; choose one of: {names}.")


def _imported(kind: str, name: str, find: Callable[[], Any]) -> Factory:
    try:
        factory: Factory = find()
    except ImportError as error:
        extra = EXTRAS.get((kind, name))
        how = f"pip install 'duologue[{extra}]'" if extra else "duologue doctor may know how to get it"
        raise EngineUnavailable(
            f"The {kind} engine {name!r} needs a library that is not installed ({error}); "
            f"{how}, or choose another engine."
        ) from error
    return factory
