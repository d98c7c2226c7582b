"""Which models of the store the chosen engines need, and fetching those that are missing."""

from __future__ import annotations

from server.models_cli import fetch_one
from server.settings import Settings
from server.startup import Report
from units.models import CATALOGUE, ModelStore

DEFAULTS = {
    "silero": "silero-vad-6.2",
    "smart-turn": "smart-turn-v3.2",
    "faster-whisper": "whisper-base",
    "llama-cpp": "qwen2.5-coder-0.5b-instruct",
    "kokoro": "kokoro-82m-int8",
}
"""The model of an engine when none is chosen."""

ALSO = {"kokoro": "kokoro-voices"}
"""What an engine needs beside its model."""

ON_CUDA = {"kokoro-82m-int8": "kokoro-82m"}


def needed(settings: Settings) -> list[str]:
    """Names of the models, in the order of loading. Local paths and hub ids are not among them."""
    names: list[str] = []
    for kind in ("vad", "turn", "stt", "llm", "tts"):
        engine = settings.engine(kind)
        default = DEFAULTS.get(engine.name, "")
        if default and engine.device == "cuda":
            default = ON_CUDA.get(default, default)
        names += [engine.model or default, ALSO.get(engine.name, "")]
    return [name for name in names if name in CATALOGUE]


def fetch_missing(settings: Settings, report: Report) -> None:
    """Fetch what is needed and not there, with a progress bar on stderr. Blocks; raises ModelError."""
    store = ModelStore(settings.models_dir)
    for name in needed(settings):
        if store.state(name) != "present":
            report(f"fetching {name}")
            fetch_one(store, name)
