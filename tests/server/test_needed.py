from __future__ import annotations

from typing import Any

import pytest

from server.needed import ALSO, DEFAULTS, ON_CUDA, needed
from server.settings import Settings
from units.models import CATALOGUE


def test_a_plain_start_needs_the_default_models() -> None:
    assert sorted(needed(Settings())) == sorted(name for name, model in CATALOGUE.items() if model.default)


@pytest.mark.parametrize("name", [*DEFAULTS.values(), *ALSO.values(), *ON_CUDA.values()])
def test_what_may_be_needed_is_in_the_catalogue(name: str) -> None:
    assert name in CATALOGUE


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (
            {
                "vad": "scripted",
                "turn_detector": "none",
                "stt": "scripted",
                "llm_backend": "scripted",
                "tts": "scripted",
            },
            [],
        ),
        (
            {"stt": "openai", "llm_backend": "chat-completions"},
            ["silero-vad-6.2", "smart-turn-v3.2", "kokoro-82m-int8", "kokoro-voices"],
        ),
        (
            {
                "vad": "scripted",
                "turn_detector": "scripted",
                "stt_model": "whisper-tiny.en",
                "llm_model": "/models/mine.gguf",
                "tts": "openai",
            },
            ["whisper-tiny.en"],
        ),
        (
            {"turn_detector": "none", "stt": "openai", "llm_backend": "responses", "device": "cuda"},
            ["silero-vad-6.2", "kokoro-82m", "kokoro-voices"],
        ),
    ],
)
def test_only_what_the_chosen_engines_use_is_needed(settings: dict[str, Any], names: list[str]) -> None:
    assert needed(Settings(**settings)) == names
