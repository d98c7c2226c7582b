"""Putting it together: engines, one unit by hand, or a whole pipeline.

By hand, in a script::

    engines = load_engines(PipelineConfig(stt=EngineSettings("scripted"), ...))
    unit = build_unit(engines)
    unit.start()                          # inside a running event loop
    session = unit.open(transport)        # anything with send(event) and close(reason)
    session.hear(pcm)                     # float32 mono at 16 kHz
    frame = unit.output_queue.pull(480)   # int16 mono at unit.output_queue.sample_rate, or None
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from units.config import PipelineConfig
from units.engines import registry
from units.engines.base import (
    EngineError,
    EngineSettings,
    EngineUnavailable,
    LanguageModel,
    SpeechToText,
    TextToSpeech,
    TurnDetector,
    VoiceActivityDetector,
)
from units.messages import EAR_RATE, Generate, Message
from units.pool import UnitPool
from units.realtime.service import ServiceConfig
from units.stages.vad import CHUNK
from units.unit import Engines, PipelineUnit, service_config

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Told, in a few words, what is being loaded or warmed."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Engines and the pool of units that share them."""

    config: PipelineConfig
    engines: Engines
    pool: UnitPool

    def start(self) -> None:
        """Start the units on the running event loop."""
        self.pool.start()

    def service_config(self) -> ServiceConfig:
        """What sessions are like when their clients say nothing."""
        return service_config(self.config, self.engines)

    async def stop(self, deadline_s: float = 5.0) -> list[str]:
        """Stop the units, then the engines; names of the stage threads still alive after ``deadline_s``."""
        alive = await self.pool.stop(deadline_s)
        close_engines(self.engines)
        return alive


def build_pipeline(config: PipelineConfig, progress: Progress | None = None) -> Pipeline:
    """Load and warm the engines, and build the units. Blocks; raises EngineUnavailable.

    The units do not run yet: call :meth:`Pipeline.start` on the event loop.
    """
    engines = load_engines(config, progress)
    if config.mcp_servers:
        import_module("units.mcp_client")
    pool = UnitPool(
        config.num_pipelines,
        lambda index: build_unit(engines, config, index),
        quarantine_after=config.quarantine_after,
    )
    return Pipeline(config, engines, pool)


def build_unit(engines: Engines, config: PipelineConfig | None = None, index: int = 0) -> PipelineUnit:
    """One unit. ``config`` is copied; of it, only what concerns sessions is used here."""
    return PipelineUnit(index, engines, config or PipelineConfig())


def load_engines(config: PipelineConfig, progress: Progress | None = None) -> Engines:
    """Load the engines and make each do a little work, so that the first caller need not wait."""
    say = progress or _log
    return Engines(
        vad=_load("vad", config.vad, say, _warm_vad),
        turn=_load("turn", config.turn, say, _warm_turn),
        stt=_load("stt", config.stt, say, _warm_stt),
        llm=_load("llm", config.llm, say, partial(_warm_llm, instructions=config.instructions)),
        tts=_load("tts", config.tts, say, _warm_tts),
    )


def close_engines(engines: Engines) -> None:
    """Let engines with a ``close`` method give back what they hold."""
    for engine in (engines.vad, engines.turn, engines.stt, engines.llm, engines.tts):
        close = getattr(engine, "close", None)
        if close is not None:
            close()


def _load(kind: str, settings: EngineSettings, say: Progress, warm: Callable[[Any], None]) -> Any:
    say(f"loading {_TITLES[kind]}: {settings.name}{f' ({settings.model})' if settings.model else ''}")
    began = time.monotonic()
    engine = registry.load(kind, settings)
    try:
        warm(engine)
    except EngineUnavailable:
        raise
    except EngineError as error:
        raise EngineUnavailable(f"The {kind} engine {settings.name!r} does not work: {error}") from error
    logger.info("%s engine %s is ready after %.1f s", kind, settings.name, time.monotonic() - began)
    return engine


_TITLES = {
    "vad": "voice activity",
    "turn": "end of turn",
    "stt": "speech to text",
    "llm": "language model",
    "tts": "text to speech",
}


def _warm_vad(engine: VoiceActivityDetector) -> None:
    engine.open().probability(np.zeros(CHUNK, np.float32))


def _warm_turn(engine: TurnDetector | None) -> None:
    if engine is not None:
        engine.finished(np.zeros(CHUNK, np.float32))


def _warm_stt(engine: SpeechToText) -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, EAR_RATE).astype(np.float32)
    engine.transcribe(noise)


def _warm_llm(engine: LanguageModel, instructions: str) -> None:
    """With the real instructions: a local model has then read them before anybody calls."""
    warm = getattr(engine, "warm", None)
    if warm is not None:
        warm()
    request = Generate((Message("user", "Hi"),), instructions, max_output_tokens=1, voice=None)
    for _ in engine.generate(request):
        pass


def _warm_tts(engine: TextToSpeech) -> None:
    for _ in engine.synthesize("Ready."):
        pass


def _log(message: str) -> None:
    logger.info("%s", message)
