"""What a person chose for the pipeline, in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass, field

from units.engines.base import EngineSettings

INSTRUCTIONS = (
    "You are a friendly voice assistant. Your words are spoken aloud, so answer in one to three short, "
    "natural sentences, without lists, headings, emoji or markup. If you did not understand, ask."
)
"""Default instructions; visible to clients in ``session.created``."""


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """Engines, the number of units, and what all sessions start with."""

    num_pipelines: int = 1
    """Units, and so conversations at a time."""
    vad: EngineSettings = field(default_factory=lambda: EngineSettings("silero"))
    turn: EngineSettings = field(default_factory=lambda: EngineSettings("smart-turn"))
    stt: EngineSettings = field(default_factory=lambda: EngineSettings("faster-whisper"))
    llm: EngineSettings = field(default_factory=lambda: EngineSettings("llama-cpp"))
    tts: EngineSettings = field(default_factory=lambda: EngineSettings("kokoro"))
    model: str = "duologue"
    """What clients see as ``session.model``."""
    instructions: str = INSTRUCTIONS
    voice: str = ""
    """Name of a voice; empty for the speech engine's default."""
    live_transcripts: bool = True
    apology: str = "Sorry, something went wrong. Please try again."
    """Spoken when a model fails. Empty: say nothing."""
    strict_protocol: bool = False
    """Refuse what OpenAI's service refuses, such as the beta's flat sessions, and do not make sense of it."""
    session_seconds: int = 3600
    """Longest session."""
    mcp_servers: tuple[str, ...] = ()
    """Addresses at and below which clients may name MCP servers, whose tools are then called from here."""
    idle_timeout: int = 0
    """Seconds after which a session ends in which nothing happens; 0: never."""
    locked: tuple[str, ...] = ()
    """Session settings that clients cannot change; of :data:`units.realtime.config.LOCKABLE`."""
    quarantine_after: float = 5.0
    """Seconds that a released unit may take to drain before it is shown as quarantined."""
