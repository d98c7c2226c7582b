"""PipelineUnit: two lines of three stages, the session between them, and what is still in flight.

    ears:   voice activity -> speech to text -> transcription notifier   one scope per session
    mouth:  language model -> output processor -> text to speech         one scope per response

A unit owns its threads, queues and scopes and shares nothing with other units but the engines. Except
for what the stages do, everything happens on the event loop thread that started it.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from units.config import PipelineConfig
from units.engines.base import (
    LanguageModel,
    SpeechToText,
    TextToSpeech,
    TurnDetector,
    VoiceActivityDetector,
)
from units.line import Delivery, Line, Stage, StageDied, StageRunner
from units.messages import End, Envelope, Generate, Prepare, Say
from units.observe import Observer
from units.playout import Playout
from units.realtime.service import RealtimeService, ServiceConfig
from units.scope import CancelScope
from units.session import SHUTTING_DOWN, Session, ToolServers, Transport
from units.stages.llm import answer
from units.stages.notifier import notify
from units.stages.output import GROWING, SENTENCES, Pacing, process
from units.stages.stt import transcribe
from units.stages.tts import speak
from units.stages.vad import detect_turns

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engines:
    """The models of a process, loaded and shared by all its units."""

    vad: VoiceActivityDetector
    stt: SpeechToText
    llm: LanguageModel
    tts: TextToSpeech
    turn: TurnDetector | None = None
    """None: turns end by silence alone."""


class PipelineUnit:
    """One conversation's worth of stages.

    ``config`` is copied; ``engines`` are shared. Nothing runs before :meth:`start`.
    ``on_idle(unit)`` is called when a released unit has drained, ``on_died(unit)`` when one of its
    stage threads is gone and it will never work again.
    """

    def __init__(self, index: int, engines: Engines, config: PipelineConfig) -> None:
        self.index = index
        self.session: Session | None = None
        self.output_queue = Playout(engines.tts.sample_rate)
        self.outstanding: set[CancelScope] = set()
        self.on_idle: Callable[[PipelineUnit], None] = _ignore
        self.on_released: Callable[[PipelineUnit], None] = _ignore
        self.on_died: Callable[[PipelineUnit], None] = _ignore
        self._config = copy.deepcopy(config)
        self._engines = engines
        self._sessions = 0
        self._ears: Line | None = None
        self._mouth: Line | None = None
        self._aside: Line | None = None

    # --- the names that people who know the pattern look for -------------------------------------

    @property
    def service(self) -> RealtimeService | None:
        """The protocol state of the current session."""
        return None if self.session is None else self.session.service

    @property
    def cancel_scope(self) -> CancelScope | None:
        """The current session's scope; every response's scope is a child of it."""
        return None if self.session is None else self.session.scope

    @property
    def should_listen(self) -> bool:
        """Sound from the caller goes into the ears."""
        return self.session is not None and not self.session.closed

    @property
    def response_playing(self) -> bool:
        """Something is being said or waits to be said."""
        return self.output_queue.playing

    @property
    def input_queue(self) -> SimpleQueue[Envelope | None]:
        """Sound on its way to the voice activity stage."""
        return self._started(self._ears).inbox

    @property
    def text_prompt_queue(self) -> SimpleQueue[Envelope | None]:
        """Requests on their way to the language model."""
        return self._started(self._mouth).inbox

    @property
    def handlers(self) -> list[StageRunner]:
        """The six running stages, in the order in which a conversation passes them."""
        return [*self._started(self._ears).runners, *self._started(self._mouth).runners]

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the stage threads. They deliver to the running event loop."""
        self.text_output_queue = Delivery(asyncio.get_running_loop(), self._receive)
        self._ears = self._line(
            ("vad", partial(detect_turns, detector=self._engines.vad, turn_detector=self._engines.turn)),
            ("stt", partial(transcribe, engine=self._engines.stt)),
            ("notifier", notify),
        )
        self._mouth = self._new_mouth()

    def _new_mouth(self, name: str = "") -> Line:
        return self._line(
            (f"{name}llm", partial(answer, engine=self._engines.llm)),
            (f"{name}output", partial(process, pacing=self._pacing)),
            (f"{name}tts", partial(speak, engine=self._engines.tts)),
        )

    @property
    def _pacing(self) -> Pacing:
        return GROWING if getattr(self._engines.tts, "slow", False) else SENTENCES

    def _line(self, *stages: tuple[str, Stage]) -> Line:
        line = Line(stages, self.text_output_queue.put, prefix=f"unit {self.index} ")
        line.start()
        return line

    def stop(self) -> None:
        """Close the session and let the stages end. Does not wait; see :meth:`join`."""
        if self.session is not None:
            self.session.close(SHUTTING_DOWN)
        for line in (self._ears, self._mouth, self._aside):
            if line is not None:
                line.stop()

    def join(self, deadline: float) -> list[str]:
        """Wait for the stage threads until ``time.monotonic()`` is ``deadline``.

        Returns the names of those still alive. Blocks: not for the event loop thread.
        """
        lines = [line for line in (self._ears, self._mouth, self._aside) if line is not None]
        return [name for line in lines for name in line.join(deadline)]

    # --- a conversation --------------------------------------------------------------------------

    def claim(self) -> Session:
        """Take the unit for one conversation. Raises RuntimeError when it is taken."""
        if self.session is not None:
            raise RuntimeError(f"unit {self.index} is taken")
        self._sessions += 1
        self.session = Session(
            self, f"unit {self.index} session {self._sessions}", service_config(self._config, self._engines)
        )
        self.outstanding.add(self.session.scope)
        return self.session

    def open(
        self, transport: Transport, settings: Iterable[Any] = (), observers: Iterable[Observer] = ()
    ) -> Session:
        """Connect a client to the unit, claiming it if nobody has. The session begins at once.

        ``settings``: what the session begins with, each as of a ``session.update``. Raises ProtocolError.
        ``observers`` see all of it.
        """
        session = self.session if self.session is not None else self.claim()
        session.attach(transport, settings, observers)
        return session

    def tool_servers(self, listed: Callable[..., None], returned: Callable[..., None]) -> ToolServers:
        """A session's way to the MCP servers that are allowed."""
        from units.mcp_client import McpClient  # takes a second, and has been loaded with the engines

        return McpClient(self._config.mcp_servers, listed, returned)

    def hear(self, scope: CancelScope, body: object) -> None:
        """Put ``body`` into the ears' stream of the session whose scope this is."""
        self._started(self._ears).put(scope, body)

    def submit(self, scope: CancelScope, work: Generate | Say | Prepare, *, aside: bool = False) -> None:
        """Give the mouth one piece of work, which is all of its scope.

        ``aside``: not behind what is being said. A second mouth, made when it is first needed, takes it.
        """
        self.outstanding.add(scope)
        if aside and self._aside is None:
            self._aside = self._new_mouth("aside ")
        mouth = self._started(self._aside if aside else self._mouth)
        mouth.put(scope, work)
        mouth.put(scope, End())

    def release(self, session: Session) -> None:
        """The conversation is over. The unit is free once the last End has come out of it."""
        assert session is self.session, "a unit is released by its own session"
        session.scope.cancel()
        self.output_queue.flush()
        self.output_queue.on_started = self.output_queue.on_stopped = _ignore
        self.output_queue.on_pulled = None
        self.hear(session.scope, End())
        self.on_released(self)

    def _receive(self, envelope: Envelope) -> None:
        if isinstance(envelope.body, StageDied):
            self._die()
            return
        if self.session is not None:
            self.session.receive(envelope)
        if isinstance(envelope.body, End):
            self.outstanding.discard(envelope.scope)
            if not self.outstanding and self.session is not None and self.session.closed:
                self.session = None
                self.on_idle(self)

    def _die(self) -> None:
        logger.error("unit %d lost a stage and is replaced", self.index)
        if self.session is not None:
            self.session.close("internal error")
        self.on_died(self)

    @staticmethod
    def _started(line: Line | None) -> Line:
        assert line is not None, "the unit is not started"
        return line


def service_config(config: PipelineConfig, engines: Engines) -> ServiceConfig:
    """What sessions are like with these engines, when their clients say nothing."""
    voices = engines.tts.voices
    return ServiceConfig(
        model=config.model,
        instructions=config.instructions,
        voice=config.voice or (voices[0] if voices else "default"),
        live_transcripts=config.live_transcripts and engines.stt.live,
        apology=config.apology,
        prepares=hasattr(engines.llm, "prepare"),
        strict=config.strict_protocol,
        expires_in=config.session_seconds,
        context_tokens=getattr(engines.llm, "context_tokens", 0),
        mcp_servers=config.mcp_servers,
        idle_timeout=config.idle_timeout,
        locked=config.locked,
    )


def _ignore(_: object) -> None:
    pass
