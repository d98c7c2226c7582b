"""Session: one conversation on a claimed unit. It drives the pure service: events and envelopes in,
effects performed in order, all on the event loop thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from units.messages import Audio, Envelope, Float32, Int16, Pcm, Recording, Said
from units.observe import Observer, Worked
from units.playout import AssumedPlayout, Heard
from units.realtime.effects import (
    Append,
    CallTool,
    CancelTool,
    Close,
    Effect,
    FinishPlaying,
    FlushPlayout,
    Hear,
    ListTools,
    Play,
    Recognise,
    SendAudio,
    SendEvent,
    StopPlaying,
    Submit,
)
from units.realtime.errors import ProtocolError
from units.realtime.parse import MAX_MESSAGE
from units.realtime.service import RealtimeService, ServiceConfig
from units.realtime.sound import RATES, encoded
from units.resample import EarResampler, VoiceResampler
from units.scope import CancelScope, current_scope, entered

if TYPE_CHECKING:
    from units.unit import PipelineUnit

logger = logging.getLogger(__name__)


SHUTTING_DOWN = "the server is shutting down"
"""Why a session was closed that did nothing wrong."""
LAST_WORDS_S = 0.5
"""From when a session could end to its end: the last sound is still on its way, or the client is about to ask
for what comes next."""
MOST_UNHEARD = 600
"""Pieces of sound kept for the ears, who are faster than a person speaks; what comes beyond is refused."""


class Transport(Protocol):
    """The client's end, as a session sees it. Called on the loop thread; neither method blocks or raises.

    Optional: ``plays_audio: bool``, True unless said otherwise. When it is False the client plays the sound
    itself and gets it in events. ``max_message: int``: characters of the longest client event.
    ``connected: bool``: what is sent reaches the client.
    """

    def send(self, event: dict[str, Any]) -> None:
        """One server event. Sent in order; kept until the client is there."""

    def close(self, reason: str) -> None:
        """The session is over, and why. Called at most once."""


class ToolServers(Protocol):
    """Where tools run that are not the client's; see :class:`units.mcp_client.McpClient`."""

    def perform(self, effect: ListTools | CallTool | CancelTool) -> None:
        """Begin to do what is wanted, or stop doing it. Does not block."""

    def close(self) -> None:
        """Nothing more is wanted, and nothing more is to be answered."""


class Session:
    """Owned by its unit. ``close`` may be called at any time, any number of times."""

    def __init__(self, unit: PipelineUnit, name: str, config: ServiceConfig) -> None:
        self.unit = unit
        self.name = name
        self.scope = CancelScope(name, ids={**current_scope().ids, "unit": unit.index})
        self.service = RealtimeService(self.scope, config, now=time.time())
        self.scope.ids["session"] = self.service.session.id
        self.closed = False
        self._observers: tuple[Observer, ...] = ()
        self._transport: Transport | None = None
        self._others: list[Transport] = []  # they see and control the same session; the sound is not theirs
        self._asking: Transport | None = None  # whose event is being handled
        self._appended: dict[int, EarResampler] = {}
        self._voices: dict[str, VoiceResampler] = {}  # by item id: of speech that is being sent in events
        self._elsewhere = AssumedPlayout()
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_since = time.time()  # when the client was last sent something
        self._tool_servers: ToolServers | None = None  # made when they are first needed
        self._stopping = False
        self._ending: asyncio.TimerHandle | None = None  # runs while a stopping session may end

    def attach(
        self, transport: Transport, settings: Iterable[Any] = (), observers: Iterable[Observer] = ()
    ) -> None:
        """The client is there: send ``session.created`` and begin to listen.

        ``settings`` are applied before, one after the other, each as of a ``session.update``. Raises
        ProtocolError when one of them is wrong; the session is closed then.
        """
        assert self._transport is None, "a session has one transport"
        self._observers = tuple(observers)
        try:
            self.service.configure(settings)
        except ProtocolError:
            self.close("wrong settings")
            raise
        self._transport = transport
        self.unit.output_queue.on_started = self._playout_started
        self.unit.output_queue.on_stopped = self._playout_stopped
        self._set_timer()
        sends_audio = not getattr(transport, "plays_audio", True)
        if self._observers and not sends_audio:
            self.unit.output_queue.on_pulled = self._played
        max_message = getattr(transport, "max_message", MAX_MESSAGE)
        self._run(lambda: self.service.open(sends_audio=sends_audio, max_message=max_message))

    def hear(self, samples: Float32) -> None:
        """Sound from the caller: float32 mono at 16 kHz, any length. The array must not change any more."""
        if not self.closed:
            self._heard(samples)

    def _heard(self, samples: Float32) -> None:
        for observer in self._observers:
            observer.heard(samples)
        self.unit.hear(self.scope, Pcm(samples))

    def handle(self, message: str | bytes, sender: Transport | None = None) -> None:
        """A client event as it arrived. What is wrong with it is answered; nothing is raised.

        ``sender`` is a transport that has joined, and alone is told of its mistakes.
        """
        self._asking = sender or self._transport
        self._run(self.service.handle, message)
        self._asking = None

    def join(self, transport: Transport) -> None:
        """One more client of the session: it gets every event from now on, and may send any."""
        self._others.append(transport)
        transport.send(self.service.greeting())

    def leave(self, transport: Transport) -> None:
        """A client that had joined is gone; the session goes on."""
        if transport in self._others:
            self._others.remove(transport)

    @property
    def joined(self) -> int:
        """Clients that have joined and not left."""
        return len(self._others)

    def complain(self, error: ProtocolError) -> None:
        """The client did something wrong that is no event, and is to be told."""
        self._run(self.service.complain, error)

    def receive(self, envelope: Envelope) -> None:
        """Something came out of one of the unit's lines."""
        if isinstance(envelope.body, Worked):
            for observer in self._observers:
                observer.worked(envelope.scope.name, envelope.body)
            return
        self._run(self.service.receive, envelope, scope=envelope.scope)

    def stop(self) -> None:
        """The server is about to stop: tell the client, and end as soon as nothing is going on."""
        self._run(self.service.stop)
        self._stopping = True
        self._end_if_over()

    def close(self, reason: str = "hung up") -> None:
        """Release the unit; it can be claimed again once it has drained."""
        if not self.closed:
            with entered(self.scope):
                self._close(reason)

    def _close(self, reason: str) -> None:
        self.closed = True
        logger.debug("%s closed: %s", self.name, reason)
        for timer in (self._timer, self._ending):
            if timer is not None:
                timer.cancel()
        if self._tool_servers is not None:
            self._tool_servers.close()
        self._conclude()
        self.unit.release(self)
        for transport in self._transports():
            transport.close(reason)
        self._others.clear()
        for observer in self._observers:
            observer.closed(reason)
        self._observers = ()

    def _conclude(self) -> None:
        """What is being said ends here, so that it is known how much of it was heard."""
        if self._observers:
            heard = self.unit.output_queue.flush()
            for said in self.service.ended(heard, self._elsewhere.heard(time.monotonic())):
                self._said(said)

    def _run(
        self, step: Callable[..., list[Effect]], *args: object, scope: CancelScope | None = None
    ) -> None:
        """Our own fault ends this session, never the server. ``scope``: what it is done for."""
        if self.closed:
            return
        with entered(scope or self.scope):
            try:
                self._perform(step(*args))
            except Exception:
                logger.exception("%s failed", self.name)
                self.close("internal error")
        self._end_soon_if_over()

    def arrived(self) -> None:
        """A client that was still connecting is there."""
        self._end_soon_if_over()

    def _end_soon_if_over(self) -> None:
        """Looked at after every step: what ends something is one, and the first event of a new client. Steps
        that begin nothing, such as silence that is heard, put nothing off."""
        if not self._stopping or self.closed:
            return
        if not self._over:
            if self._ending is not None:
                self._ending.cancel()
            self._ending = None
        elif self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(LAST_WORDS_S, self._end_if_over)

    def _end_if_over(self) -> None:
        self._ending = None
        if self._over:
            self.close(SHUTTING_DOWN)

    @property
    def _over(self) -> bool:
        """The client is there, and nothing goes on."""
        there = all(getattr(transport, "connected", True) for transport in self._transports())
        return there and not self.service.unfinished

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if self.closed:
                return
            match effect:
                case SendEvent(event):
                    self._send(event)
                case Submit(scope, work, aside):
                    self.unit.submit(scope, work, aside=aside)
                case Hear(body):
                    self.unit.hear(self.scope, body)
                case Append(samples, rate):
                    self._append(samples, rate)
                case Recognise(number, sound, rate, language):
                    self.unit.hear(self.scope, Recording(number, sound, rate, language))
                case SendAudio(event, audio, kind):
                    self._send_audio(event, audio, kind)
                case Play(response_id, _, audio):
                    self.unit.output_queue.write(response_id, audio)
                case FinishPlaying(response_id):
                    self.unit.output_queue.finish(response_id)
                case FlushPlayout():
                    self._perform(self.service.flushed(self.unit.output_queue.flush()))
                case StopPlaying(item_id, audio_end_ms):
                    self._stop_playing(item_id, audio_end_ms)
                case Said():
                    self._said(effect)
                case ListTools() | CallTool() | CancelTool():
                    self._reach_tools().perform(effect)
                case Close(reason):
                    self.close(reason)

    def _reach_tools(self) -> ToolServers:
        if self._tool_servers is None:
            listed = partial(self._run, self.service.tools_listed)
            returned = partial(self._run, self.service.tool_returned)
            self._tool_servers = self.unit.tool_servers(listed, returned)
        return self._tool_servers

    def _send(self, event: dict[str, Any]) -> None:
        logger.debug("%s > %s", self.name, event["type"])
        self._quiet_since = time.time()
        if event["type"] == "error" and self._asking is not None:
            self._asking.send(event)
        else:
            for transport in self._transports():
                transport.send(event)
        for observer in self._observers:
            observer.sent(event)

    def _transports(self) -> list[Transport]:
        return [*([] if self._transport is None else [self._transport]), *self._others]

    def _send_audio(self, event: dict[str, Any], audio: Audio | None, kind: str) -> None:
        voice = self._voices.setdefault(event["item_id"], VoiceResampler(RATES[kind]))
        if audio is None:
            del self._voices[event["item_id"]]
            samples = voice.finish()
        else:
            samples = voice.convert(audio.samples, audio.rate)
        if not len(samples):
            return
        if self._observers:
            self._elsewhere.queued(event["item_id"], len(samples) / RATES[kind], time.monotonic())
        for observer in self._observers:
            observer.queued(event["item_id"], samples, RATES[kind])
        self._send({**event, "delta": encoded(samples, kind)})

    def _stop_playing(self, item_id: str, audio_end_ms: int) -> None:
        if not item_id and not self._elsewhere.stop(time.monotonic()):
            return
        for observer in self._observers:
            observer.stopped(item_id, audio_end_ms)

    def _said(self, said: Said) -> None:
        for observer in self._observers:
            observer.said(said)

    def _append(self, samples: Int16, rate: int) -> None:
        if rate not in self._appended:
            self._appended = {rate: EarResampler(rate)}
        for start in range(0, len(samples), rate):
            if self.unheard >= MOST_UNHEARD:
                self._run(self.service.overrun)
                return
            self._heard(self._appended[rate].convert(samples[start : start + rate]))

    @property
    def unheard(self) -> int:
        """Pieces of sound, of a second at most, that the ears have not got to."""
        return self.unit.input_queue.qsize()

    def _played(self, samples: Int16) -> None:
        for observer in self._observers:
            observer.played(samples, self.unit.output_queue.sample_rate)

    def _playout_started(self, response_id: str) -> None:
        self._run(self.service.playout_started, response_id)

    def _playout_stopped(self, heard: Heard) -> None:
        self._run(self.service.playout_stopped, heard)

    def _set_timer(self) -> None:
        delay = max(0.1, self.service.deadline(self._quiet_since) - time.time())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        now = time.time()
        if self.service.busy:
            self._quiet_since = now
        self._run(self.service.handle_timer, now, self._quiet_since)
        if not self.closed:  # something has happened meanwhile, or the wall clock was set back
            self._set_timer()
