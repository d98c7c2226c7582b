"""RealtimeService: the OpenAI Realtime protocol of one session, pure.

Events and envelopes go in, effects come out, in order. It owns the conversation, the caller's turns and
every response that is not done; it knows no threads, clock or sockets, and what it is told about sound
it is told by the session driver. A response's output counts only while its scope is in ``_responses``:
that one look-up is the gate that keeps stale output from the client.
"""

from __future__ import annotations

import copy
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from units.messages import (
    COMMIT_MIN_MS,
    Audio,
    Await,
    Clear,
    Commit,
    Committed,
    End,
    Envelope,
    Failed,
    Finish,
    Generate,
    Message,
    Prepare,
    RecordingHeard,
    Said,
    Say,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    StayedSilent,
    TextDelta,
    TextFinished,
    ToolCalled,
    TranscriptDelta,
    TranscriptFailed,
    TranscriptFinal,
    TranscriptGuess,
)
from units.playout import Heard
from units.realtime.config import ResponseConfig, SessionConfig
from units.realtime.context import text_tokens, tokens
from units.realtime.conversation import Conversation, Item, history
from units.realtime.effects import (
    Append,
    Close,
    Effect,
    FinishPlaying,
    FlushPlayout,
    Hear,
    Recognise,
    SendAudio,
    SendEvent,
    StopPlaying,
    Submit,
)
from units.realtime.errors import ProtocolError, missing, wrong_type, wrong_value
from units.realtime.items import read_item, recordings
from units.realtime.legacy import modern
from units.realtime.mcp import RemoteTools
from units.realtime.minutes import answered, called, lost, put_in, recorded, spoken
from units.realtime.parse import MAX_MESSAGE, Event, event_type, parse_event
from units.realtime.response import Response, ResponseState
from units.realtime.servers import RemoteTool, ToolFault
from units.realtime.sound import PCM, RATES, decoded
from units.scope import CancelScope
from units.turns import SpeculativeTurnTracker, Turn

logger = logging.getLogger(__name__)

_SILENT = "The user has said nothing for a while. Ask in a few words whether they are still there."
"""Added to the instructions when an idle timeout has passed."""

LONGEST_ANSWER = 600.0
"""Seconds of speech after which a response is incomplete: made speech waits in memory until it is heard."""

MOST_DEFERRED = 16
"""Requests for responses that may wait for words or tools."""
MOST_RECORDINGS = 16
"""Parts of items that may wait for the recogniser: what it cannot get to would fill the memory."""

Step = Iterator[Effect | dict[str, Any]]
"""Effects, and server events still without their ``event_id``."""


def random_id(prefix: str) -> str:
    """An id such as ``item_5f2a…``: 22 hexadecimal digits, since some clients allow 32 characters."""
    return f"{prefix}_{secrets.token_hex(11)}"


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What the operator decided for all sessions."""

    model: str = "duologue"
    instructions: str = ""
    voice: str = "default"
    live_transcripts: bool = True
    apology: str = "Sorry, something went wrong. Please try again."
    """Spoken when the model fails."""
    prepares: bool = False
    """The model can read a prompt ahead of being asked."""
    strict: bool = False
    """Sessions in the beta's flat shape, or without a type, are refused."""
    expires_in: int = 3600
    """Length of a session, in seconds."""
    context_tokens: int = 0
    """What the model can read, instructions and tools included; 0: anything."""
    mcp_servers: tuple[str, ...] = ()
    """Addresses at and below which clients may name MCP servers."""
    idle_timeout: int = 0
    """Seconds without anything happening after which a session is over; 0: never."""
    locked: tuple[str, ...] = ()
    """Settings that clients cannot change."""


class RealtimeService:
    """One session's protocol state. All methods return the effects to perform, in order.

    ``now`` is a Unix timestamp, read once for the session's ``expires_at``.
    """

    def __init__(
        self,
        scope: CancelScope,
        config: ServiceConfig = ServiceConfig(),
        *,
        now: float = 0.0,
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        self.scope = scope
        self.conversation = Conversation(new_id("conv"))
        self.session = SessionConfig.default(
            id=new_id("sess"),
            model=config.model,
            instructions=config.instructions,
            voice=config.voice,
            expires_at=int(now) + config.expires_in,
            mcp_servers=config.mcp_servers,
            locked=config.locked,
        )
        self._config = config
        self._new_id = new_id
        self._turns = SpeculativeTurnTracker()
        self._responses: dict[CancelScope, Response] = {}
        self._sends_audio = False  # the client plays the sound, and knows what was heard
        self._sent: dict[str, Response] = {}  # by item id: what a client that plays the sound was sent
        self._unsettled: dict[str, Response] = {}  # by id: of those, what the client may yet cut short
        self._max_message = MAX_MESSAGE
        self._audible: dict[str, Response] = {}  # by id: spoken, and not known to have been heard to the end
        self._sounding: set[str] = set()  # ids of those of which something was heard
        self._deferred: list[Event] = []  # response.create that waits for words of the caller
        self._recordings: dict[int, tuple[Item, int]] = {}  # by number: item and part that have no words yet
        self._recorded = 0  # recordings so far
        self._commits: list[tuple[Any, str]] = []  # event_id and item, until the ears answer
        self._unanswered = False  # a turn ended while a response was not to be interrupted
        self._preparing: CancelScope | None = None
        self._mcp = RemoteTools(self.conversation, new_id)
        self._handlers: dict[str, Callable[[Event], Step]] = {
            "session.update": self._session_update,
            "input_audio_buffer.append": self._input_append,
            "input_audio_buffer.commit": self._input_commit,
            "input_audio_buffer.clear": self._input_clear,
            "output_audio_buffer.clear": self._output_clear,
            "conversation.item.create": self._item_create,
            "conversation.item.retrieve": self._item_retrieve,
            "conversation.item.delete": self._item_delete,
            "conversation.item.truncate": self._item_truncate,
            "response.create": self._response_create,
            "response.cancel": self._response_cancel,
        }

    # --- what happens to a session ---------------------------------------------------------------

    def configure(self, settings: Iterable[Any]) -> None:
        """Settings, as of ``session.update``, from before there was a client. Raises ProtocolError."""
        for patch in settings:
            self.session = self.session.begun(patch)

    def open(self, *, sends_audio: bool = False, max_message: int = MAX_MESSAGE) -> list[Effect]:
        """The client is there. ``sends_audio``: it plays the sound itself, and is sent it in events."""
        self._sends_audio = sends_audio
        self._max_message = max_message
        return self._perform(self._open())

    def greeting(self) -> dict[str, Any]:
        """What a client that joins a session is sent first."""
        return self._event({"type": "session.created", "session": self.session.wire()})

    def _open(self) -> Step:
        yield {"type": "session.created", "session": self.session.wire()}
        yield Hear(self.session.listen(live=self._config.live_transcripts))
        yield from self._mcp.list_new(self.session.servers)

    def handle(self, message: str | bytes) -> list[Effect]:
        """A client event as it arrived. Never raises: what is wrong with it becomes one ``error``."""
        event: Event = {}
        try:
            event = parse_event(message, limit=self._max_message)
            return self._perform(self._dispatch(event))
        except ProtocolError as error:
            logger.debug("client error %s: %s", error.code, error.param)
            return self._perform(iter([self._error(error, event.get("event_id"))]))

    def _dispatch(self, event: Event) -> Step:
        kind = event_type(event)
        handler = self._handlers.get(kind)
        if handler is None:
            raise wrong_value("type", kind, self._handlers)
        return handler(event)

    def receive(self, envelope: Envelope) -> list[Effect]:
        """Something came out of a line."""
        response = self._responses.get(envelope.scope)
        if response is not None:
            return self._perform(self._advance(response, envelope.body))
        if envelope.scope is self.scope and not self.scope.cancelled:
            return self._perform(self._hear(envelope.body))
        return []

    def overrun(self) -> list[Effect]:
        """The client sends sound faster than it can be listened to; the last of it was dropped."""
        message = "Sound arrives faster than it can be listened to: the rest of this event was dropped."
        return self.complain(ProtocolError("input_audio_buffer_overrun", message, "audio"))

    def complain(self, error: ProtocolError) -> list[Effect]:
        """The client did something wrong that is no event."""
        return self._perform(iter([self._error(error, None)]))

    def playout_started(self, response_id: str) -> list[Effect]:
        """The first sound of this response is on its way to the caller."""
        self._sounding.add(response_id)
        return self._perform(iter([{"type": "output_audio_buffer.started", "response_id": response_id}]))

    def playout_stopped(self, heard: Heard) -> list[Effect]:
        """The response was heard to its end."""
        response = self._audible.pop(heard.tag, None)
        if response is not None and response.text != response.queued_text:
            self._trim(response, heard.text)
        return self._perform(self._stopped(heard, response))

    def _stopped(self, heard: Heard, response: Response | None) -> Step:
        if heard.tag in self._sounding:  # else there was nothing to pronounce
            self._sounding.discard(heard.tag)
            yield {"type": "output_audio_buffer.stopped", "response_id": heard.tag}
        if response is not None:
            yield from answered(response, heard.text, interrupted=response.status == "cancelled")
            yield from self._await_speech(response)

    def flushed(self, heard: Iterable[Heard]) -> list[Effect]:
        """Answer to FlushPlayout: how far the speech got that was in the queue."""
        return self._perform(self._flushed({each.tag: each for each in heard}))

    def tools_listed(self, item_id: str, answer: tuple[RemoteTool, ...] | ToolFault) -> list[Effect]:
        """Answer to ListTools."""
        return self._perform(self._tools_listed(item_id, answer))

    def _tools_listed(self, item_id: str, answer: tuple[RemoteTool, ...] | ToolFault) -> Step:
        yield from self._mcp.listed(item_id, answer)
        yield from self._run_deferred()
        self._mcp.forget_failures()

    def tool_returned(self, item_id: str, outcome: str | ToolFault) -> list[Effect]:
        """Answer to CallTool: the output, or why there is none."""
        return self._perform(self._mcp.returned(item_id, outcome))

    def ended(self, heard: Iterable[Heard], played: Mapping[str, float]) -> list[Said]:
        """The session is over: what was heard of what was under way, and what the caller said last.

        ``heard``: of what was in the queue. ``played``: of items that the client plays itself, in seconds.
        """
        said: list[Said] = []
        for each in heard:
            if (response := self._audible.get(each.tag)) is not None:
                said += answered(response, each.text, interrupted=True)
        for response in self._unsettled.values():
            text = response.heard_text
            if text is None and response.message is not None:
                text = response.text_until(played.get(response.message["id"], 0.0))
            said += answered(response, text or "", interrupted=text != response.text)
        for turn in self._turns.unanswered:
            said += [lost(turn.item_id)] if turn.text is None else spoken(turn)
        if not self._turns.speaking:  # else the first of them is of the turn that is being spoken
            said += [lost(item_id) for _, item_id in self._commits]
        said += [lost(item["id"]) for item, _ in self._recordings.values() if self.conversation.holds(item)]
        return said

    def deadline(self, quiet_since: float) -> float:
        """When :meth:`handle_timer` is to be called, as a Unix timestamp.

        ``quiet_since``: when the client was last sent something, or the service was last :attr:`busy`.
        """
        idle = self._config.idle_timeout
        expires_at = float(self.session.expires_at)
        return min(expires_at, quiet_since + idle) if idle else expires_at

    def handle_timer(self, now: float, quiet_since: float) -> list[Effect]:
        """The session is over at its ``expires_at``, and when nothing has happened for too long."""
        if now < self.deadline(quiet_since):
            return []
        message = "Your session hit the maximum duration."
        if now < self.session.expires_at:
            message = f"Nothing has happened in your session for {self._config.idle_timeout} seconds."
        error = self._error(ProtocolError("session_expired", message), None)
        return self._perform(iter([error, Close("session expired")]))

    def stop(self) -> list[Effect]:
        """The server is about to stop; the driver ends the session once nothing is :attr:`unfinished`."""
        message = "The server is being restarted. This session ends after the answer; connect again."
        return self.complain(ProtocolError("server_shutting_down", message, type="server_error"))

    @property
    def busy(self) -> bool:
        """Somebody speaks, or something is being recognised, made or heard."""
        speech = self._turns.speaking or self._words_are_missing or self._audible
        return bool(speech or self._responses or self._deferred or self._mcp.running)

    @property
    def unfinished(self) -> bool:
        """The service is busy, or the client owes the model the result of a function."""
        return self.busy or self.conversation.awaits_result

    @property
    def active(self) -> Response | None:
        """The response that is being made for the default conversation and has been announced."""
        live = (r for r in self._responses.values() if r.state is ResponseState.LIVE)
        return next((r for r in live if not r.config.out_of_band), None)

    @property
    def held(self) -> Response | None:
        """The response that is being made on speculation."""
        return next((r for r in self._responses.values() if r.state is ResponseState.HELD), None)

    def _perform(self, steps: Step) -> list[Effect]:
        return [self._effect(step) for step in steps]

    def _effect(self, step: Effect | dict[str, Any]) -> Effect:
        match step:
            case dict():
                return SendEvent(self._event(step))
            case SendAudio(event, audio, format):
                return SendAudio(self._event(event), audio, format)
            case _:
                return step

    def _event(self, event: dict[str, Any]) -> dict[str, Any]:
        return {"type": event["type"], "event_id": self._new_id("event"), **event}

    def _error(self, error: ProtocolError, event_id: object) -> dict[str, Any]:
        known = event_id if isinstance(event_id, str) else None
        return {"type": "error", "error": {**error.body(), "event_id": known}}

    # --- what the caller says --------------------------------------------------------------------

    def _hear(self, body: object) -> Step:
        match body:
            case SpeechStarted() if not self.session.detects_turns:
                pass  # noticed before the ears were told to notice nothing
            case SpeechStarted(turn, audio_start_ms):
                item_id = self._turns.started(turn, self._new_id("item")).item_id
                yield {
                    "type": "input_audio_buffer.speech_started",
                    "audio_start_ms": audio_start_ms,
                    "item_id": item_id,
                }
                if self.session.interrupts:
                    yield from self._interrupt()
            case SpeechPaused(turn, revision):
                self._turns.paused(turn, revision)
            case SpeechResumed(turn):
                self._turns.resumed(turn)
                self._withdraw()
            case SpeechEnded(turn, audio_end_ms):
                if (ended := self._turns.ended(turn)) is not None:
                    yield from self._end_turn(ended, audio_end_ms)
            case Committed():
                yield from self._committed(body)
            case TranscriptDelta(turn, text):
                yield from self._live_transcript(turn, text)
            case TranscriptGuess(turn, text):
                yield from self._prepare(turn, text)
            case TranscriptFinal(turn, revision, text, seconds):
                yield from self._transcribed(self._turns.transcribed(turn, revision, text, seconds))
            case TranscriptFailed(turn, revision, reason):
                yield from self._transcribed(self._turns.transcribed(turn, revision, "", failure=reason))
            case RecordingHeard():
                yield from self._recording_heard(body)
            case StayedSilent(start_ms, end_ms):
                yield from self._stayed_silent(start_ms, end_ms)
            case Failed(stage, reason):
                yield self._error(_server_error(f"The {stage} stage failed."), None)
                yield Close(reason)

    def _await_speech(self, response: Response) -> Step:
        """All is said: from here on, or from when the client will have played it, silence is counted."""
        if self.session.idle_timeout_ms and self.active is None and not self._audible:
            playing_ms = int(1000 * response.seconds) if self._sends_audio else 0
            yield Hear(Await(self.session.idle_timeout_ms + playing_ms))

    def _stayed_silent(self, start_ms: int, end_ms: int) -> Step:
        if not self.session.idle_timeout_ms or self.busy:
            return
        turn = Turn(0, self._new_id("item"))
        yield {
            "type": "input_audio_buffer.timeout_triggered",
            "audio_start_ms": start_ms,
            "audio_end_ms": end_ms,
            "item_id": turn.item_id,
        }
        yield from self._settle()
        yield from self._commit(turn, "")
        config = self._response_config()
        config = replace(config, instructions=f"{config.instructions}\n\n{_SILENT}")
        yield from self._respond_or_fail(config)

    def _interrupt(self) -> Step:
        """The caller speaks: whatever is being said or made stops, also when it is complete already."""
        self._unanswered = False
        if (response := self.active) is not None:
            for step in self._cancel(response, "turn_detected"):
                if not isinstance(step, FinishPlaying):  # flushed instead, though all so far may be heard
                    yield step
        if self._audible:
            yield FlushPlayout()
        if self._sends_audio:
            yield StopPlaying()

    def _withdraw(self) -> None:
        """The caller went on: what was made on speculation never existed."""
        if (response := self.held) is not None:
            self._finish_quietly(response)

    def _finish_quietly(self, response: Response) -> None:
        del self._responses[response.scope]
        for _ in response.end("cancelled", None):
            raise AssertionError("a held response has nothing to say")

    def _end_turn(self, turn: Turn, audio_end_ms: int) -> Step:
        yield {
            "type": "input_audio_buffer.speech_stopped",
            "audio_end_ms": audio_end_ms,
            "item_id": turn.item_id,
        }
        yield from self._commit(turn)
        if turn.text is not None:
            yield from self._recognised(turn, turn.text)

    def _commit(self, turn: Turn, transcript: str | None = None) -> Step:
        """The turn enters the conversation. Its words come in an event of their own, known already or not."""
        item: Item = {
            "id": turn.item_id,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": transcript}],
        }
        turn.item = item
        previous = self.conversation.last_id
        yield {
            "type": "input_audio_buffer.committed",
            "previous_item_id": previous,
            "item_id": turn.item_id,
        }
        yield from self._add_item(item, None)

    def _committed(self, notice: Committed) -> Step:
        event_id, _ = self._commits.pop(0)
        if notice.audio_ms < COMMIT_MIN_MS:
            yield self._error(
                ProtocolError(
                    "input_audio_buffer_commit_empty",
                    "Error committing input audio buffer: buffer too small. Expected at least "
                    f"{COMMIT_MIN_MS}ms of audio, but buffer only has {notice.audio_ms:.2f}ms of audio.",
                ),
                event_id,
            )
        else:
            self._withdraw()
            turn = self._turns.committed(notice.turn, notice.item_id, notice.revision)
            yield from self._commit(turn)
        yield from self._run_deferred()

    def _live_transcript(self, number: int, text: str) -> Step:
        turn = self._turns.known(number)
        if turn is not None and self.session.transcribes:
            yield {
                "type": "conversation.item.input_audio_transcription.delta",
                "item_id": turn.item_id,
                "content_index": 0,
                "delta": text,
            }

    def _prepare(self, number: int, guess: str) -> Step:
        """Have the model read what it will be asked, as far as it is known. All but the last word is."""
        turn = self._turns.known(number)
        if turn is None or turn.committed or not self._config.prepares or not self._may_answer:
            return
        self._stop_preparing()
        self._preparing = CancelScope("preparing", self.scope)
        config = self._response_config()
        said = Message("user", guess.rpartition(" ")[0])
        yield Submit(self._preparing, Prepare(_request(config, (*self._history(config), said))))

    def _stop_preparing(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None

    def _transcribed(self, turn: Turn | None) -> Step:
        if turn is None or turn.text is None:
            return
        if turn.committed:
            yield from self._recognised(turn, turn.text)
        elif turn.text and self._may_answer:
            yield from self._speculate(turn.text)

    @property
    def _may_answer(self) -> bool:
        if not self.session.creates_response or self.active is not None or self.held is not None:
            return False
        return self.session.retention is not None or not self._overfull(self._response_config())

    def _speculate(self, text: str) -> Step:
        """Answer before the turn is certain to be over, and keep the answer back."""
        config = self._response_config()
        prompt = (*self._history(config), Message("user", text))
        response = self._new_response(config)
        yield Submit(response.scope, _request(config, prompt))

    def _recognised(self, turn: Turn, text: str) -> Step:
        """The turn is over and its words are known, or known to be lost."""
        yield from self._settle()
        yield from spoken(turn)
        if turn.failure is not None:
            yield from self._not_recognised(turn, turn.failure)
        else:
            yield from self._heard(turn, text)
        yield from self._run_deferred()

    def _heard(self, turn: Turn, text: str) -> Step:
        if turn.item is not None:
            turn.item["content"][0]["transcript"] = text
        yield from self._transcript(turn.item_id, 0, text, turn.seconds)
        if not turn.manual:
            yield from self._answer(text)

    def _transcript(
        self, item_id: str, index: int, text: str, seconds: float, failure: str | None = None
    ) -> Step:
        """What the recogniser made of a part of an item, for clients that want to see it."""
        if not self.session.transcribes:
            return
        kind = "conversation.item.input_audio_transcription"
        where = {"item_id": item_id, "content_index": index}
        if failure is not None:
            error = {"type": "server_error", "code": "transcription_failed", "message": failure}
            yield {"type": f"{kind}.failed", **where, "error": error}
        else:
            usage = {"type": "duration", "seconds": round(seconds, 3)}
            yield {"type": f"{kind}.completed", **where, "transcript": text, "usage": usage}

    def _recording_heard(self, heard: RecordingHeard) -> Step:
        item, index = self._recordings.pop(heard.number)
        if self.conversation.holds(item):
            if heard.failure is None:
                item["content"][index]["transcript"] = heard.text
            yield from recorded(item, heard.text, heard.failure)
            yield from self._transcript(item["id"], index, heard.text, heard.seconds, heard.failure)
        yield from self._run_deferred()

    def _answer(self, text: str) -> Step:
        if (response := self.held) is not None:
            yield from self._release(response)
        elif not text or not self.session.creates_response or self._turns.speaking:
            return
        elif self.active is not None:
            self._unanswered = True
        else:
            yield from self._respond_to_turn()

    def _not_recognised(self, turn: Turn, reason: str) -> Step:
        yield from self._transcript(turn.item_id, 0, "", turn.seconds, reason)
        answers = self.session.creates_response and not turn.manual
        if answers and self.active is None and not self._turns.speaking:
            yield from self._fail(self._response_config(), _server_error(reason))

    # --- responses -------------------------------------------------------------------------------

    def _new_response(self, config: ResponseConfig) -> Response:
        self._stop_preparing()
        id = self._new_id("resp")
        scope = CancelScope(id, self.scope, {"turn": id})
        conversation = None if config.out_of_band else self.conversation
        response = Response(id, scope, config, conversation, self._new_id, sends_audio=self._sends_audio)
        self._responses[scope] = response
        return response

    def _respond(self, config: ResponseConfig, prompt: tuple[Any, ...]) -> Step:
        """A response that is announced at once."""
        response = self._new_response(config)
        yield from response.release()
        yield Submit(response.scope, _request(config, prompt), config.out_of_band)

    def _respond_to_turn(self) -> Step:
        yield from self._respond_or_fail(self._response_config())

    def _respond_or_fail(self, config: ResponseConfig) -> Step:
        """A response that no client asked for, so that none can be told why there is none."""
        try:
            prompt = self._history(config)
        except ProtocolError as error:
            yield from self._fail(config, error)
        else:
            yield from self._respond(config, prompt)

    def _fail(self, config: ResponseConfig, failure: ProtocolError) -> Step:
        """A response that fails at once, with an apology if it was to be spoken."""
        response = self._new_response(config)
        yield from response.release()
        response.failure = failure
        yield from self._end_failed(response)

    def _history(self, config: ResponseConfig) -> tuple[Any, ...]:
        """What the model is shown. Raises ProtocolError if that is too long and must not be shortened."""
        if room := self._overfull(config):
            if self.session.retention is None:
                message = (
                    f"The conversation has grown beyond the {room} tokens that the model can read, and its "
                    "truncation is disabled: delete items, or allow truncation."
                )
                raise ProtocolError("context_length_exceeded", message)
            self.conversation.forget(int(room * self.session.retention))
        return self.conversation.history()

    def _overfull(self, config: ResponseConfig) -> int:
        """Tokens that the conversation may have, if it has more; else 0."""
        room = self._room(config)
        return max(1, room) if room is not None and tokens(self.conversation.history()) > room else 0

    def _room(self, config: ResponseConfig) -> int | None:
        """Tokens for the conversation, after the instructions and tools; None: as many as it has."""
        room = self.session.most_tokens
        if self._config.context_tokens:
            before = text_tokens(config.instructions) + tokens(config.tools)
            left = max(0, self._config.context_tokens - before)
            room = left if room is None else min(room, left)
        return room

    def _prompt(self, config: ResponseConfig) -> tuple[Any, ...]:
        if config.input is None:
            return self._history(config)
        items = []
        for index, given in enumerate(config.input):
            items.append(self._given_item(given, f"response.input[{index}]"))
        return history(items)

    def _given_item(self, given: Any, path: str) -> Item:
        if isinstance(given, dict) and given.get("type") == "item_reference":
            item = self.conversation.find(str(given.get("id")))
            if item is None:
                raise wrong_value(f"{path}.id", given.get("id"), "ids of items in the conversation")
            return item
        item = read_item(given, self._new_id("item"), path)
        self.session.check_role(item, path)
        if recordings(given, self._input_format, path):
            message = (
                "Sound without a transcript: create the item first, and refer to it by an item_reference."
            )
            raise ProtocolError("unsupported_content_type", message, path)
        return item

    def _release(self, response: Response) -> Step:
        yield from response.release()
        held, response.held, scope = response.held, [], response.scope
        for body in held:
            if self._responses.get(scope) is response:
                yield from self._advance(response, body)

    def _advance(self, response: Response, body: object) -> Step:
        if response.state is ResponseState.HELD:
            response.held.append(body)
            return
        match body:
            case TextDelta(text):
                yield from response.add_text(text)
                self._listen_to(response)
            case Audio() if response.heard_text is None:
                yield from response.add_audio(body)
                self._listen_to(response)
                if response.seconds > LONGEST_ANSWER:
                    response.finish_reason = Finish("length")
                    yield from self._finish(response, *_outcome(response))
            case ToolCalled(call) if call.name in response.config.remote:
                yield from self._mcp.call(response, call)
            case ToolCalled(call):
                item = yield from response.add_call(call)
                yield called(item, response)
            case TextFinished(finish):
                if response.failure is None:
                    response.finish_reason = finish
            case Failed(stage, reason):
                response.failure = response.failure or _server_error(reason)
                if stage == "tts":
                    yield from self._finish(response, *_outcome(response))
            case End() if response.failure is not None:
                yield from self._end_failed(response)
            case End():
                yield from self._finish(response, *_outcome(response))

    def _listen_to(self, response: Response) -> None:
        if not response.config.spoken or response.heard_text is not None:
            return
        if not self._sends_audio:
            self._audible[response.id] = response
        elif response.message is not None:
            self._sent[response.message["id"]] = response
            self._unsettled[response.id] = response

    def _settle(self, *only: Response) -> Step:
        """The client has had the time to say that it did not play these to the end; else all of them."""
        for response in only or tuple(self._unsettled.values()):
            if response.state is not ResponseState.DONE or response.id not in self._unsettled:
                continue
            del self._unsettled[response.id]
            text = response.heard_text
            if text is None:
                text = response.text if response.status == "completed" else response.queued_text
            interrupted = response.heard_text is not None or response.status == "cancelled"
            yield from answered(response, text, interrupted=interrupted)

    def _end_failed(self, response: Response) -> Step:
        """What the model said before it failed is out. Say so aloud, then the response is failed."""
        if response.apologised or not response.config.spoken or not self._config.apology:
            yield from self._finish(response, *_outcome(response))
            return
        response.apologised = True
        self._responses.pop(response.scope, None)
        response.scope.cancel()
        response.scope = CancelScope(f"{response.id} apology", self.scope, {"turn": response.id})
        self._responses[response.scope] = response
        space = " " if response.text else ""
        sorry = Say(space + self._config.apology, response.config.voice)
        yield Submit(response.scope, sorry, response.config.out_of_band)

    def _finish(self, response: Response, status: str, details: dict[str, Any] | None) -> Step:
        self._responses.pop(response.scope, None)
        yield from response.end(status, details)
        yield {"type": "rate_limits.updated", "rate_limits": []}
        yield from self._mcp.settle(response)
        yield from self._await_speech(response)
        if response.heard_text is not None:
            self._trim(response, response.heard_text)
            yield from self._settle(response)
        if not response.config.spoken and not response.config.out_of_band:
            yield from answered(response, response.text, interrupted=status == "cancelled")
        if self._unanswered and self.active is None:
            self._unanswered = False
            yield from self._respond_to_turn()

    def _cancel(self, response: Response, reason: str) -> Step:
        yield from self._finish(response, "cancelled", {"type": "cancelled", "reason": reason})

    def _flushed(self, heard: dict[str, Heard]) -> Step:
        audible, self._audible = self._audible, {}
        for id, response in audible.items():
            if id in heard:
                self._sounding.discard(id)
                response.heard_text = heard[id].text
                yield {"type": "output_audio_buffer.cleared", "response_id": id}
            if response.state is not ResponseState.DONE and id not in heard:
                self._audible[id] = response  # its sound is still being made, and may be heard
                continue
            place = heard.get(id, Heard(id, 0, ""))
            yield from answered(response, place.text, interrupted=True)
            if (item := self._trim(response, place.text)) is not None:
                yield {
                    "type": "conversation.item.truncated",
                    "item_id": item["id"],
                    "content_index": 0,
                    "audio_end_ms": place.audio_ms,
                }

    def _trim(self, response: Response, text: str) -> Item | None:
        """Remember only what was heard of the response; its item, if it is in the conversation."""
        item = response.message
        if item is None or not self.conversation.holds(item):
            return None
        item["content"] = [{"type": "output_audio", "transcript": text.strip()}]
        return item

    # --- client events ---------------------------------------------------------------------------

    def _session_update(self, event: Event) -> Step:
        if "session" not in event:
            raise missing("session")
        patch = event["session"]
        if isinstance(patch, dict) and not self._config.strict:
            patch = modern(patch, self.session.kind)
        before = self.session.listen(live=self._config.live_transcripts)
        updated = self.session.updated(patch)
        if self._config.strict and updated.voice != self.session.voice and self.conversation.has_sound:
            message = "Cannot update a conversation's voice if assistant audio is present."
            raise ProtocolError("cannot_update_voice", message)
        self._mcp.check_room(updated.servers)
        self.session = updated
        self._withdraw()  # what is being made on speculation was made with the old settings
        after = self.session.listen(live=self._config.live_transcripts)
        if after != before:
            yield Hear(after)
        if before.turn_detection and not after.turn_detection:
            self._drop_turn()
        yield {"type": "session.updated", "session": self.session.wire()}
        yield from self._mcp.list_new(self.session.servers)

    def _drop_turn(self) -> None:
        """The unfinished turn will never be."""
        self._withdraw()
        self._turns.clear()

    def _input_append(self, event: Event) -> Step:
        if "audio" not in event:
            raise missing("audio")
        if not isinstance(event["audio"], str):
            raise wrong_type("audio", "base64 text", event["audio"])
        kind = self._input_format
        yield Append(decoded(event["audio"], kind), RATES[kind])

    @property
    def _input_format(self) -> str:
        """Format of the sound in client events."""
        return self.session.input_format if self._sends_audio else PCM

    def _input_commit(self, event: Event) -> Step:
        item_id = self._new_id("item")
        self._commits.append((event.get("event_id"), item_id))
        yield Hear(Commit(item_id))

    def _input_clear(self, event: Event) -> Step:
        self._drop_turn()
        yield Hear(Clear())
        yield {"type": "input_audio_buffer.cleared"}

    def _output_clear(self, event: Event) -> Step:
        if self._sends_audio and self._config.strict:
            raise wrong_value(
                "type", event["type"], [kind for kind in self._handlers if kind != event["type"]]
            )
        if self._audible:
            yield FlushPlayout()

    def _item_create(self, event: Event) -> Step:
        if "item" not in event:
            raise missing("item")
        item = read_item(event["item"], self._new_id("item"))
        self.session.check_role(item, "item")
        if (turn := self._turns.current) is not None and turn.item_id == item["id"]:
            message = f"Error adding item: an item with id '{item['id']}' is being said."
            raise ProtocolError("item_create_duplicate_item_id", message, "item.id")
        sounds = recordings(event["item"], self._input_format)
        if item["type"] == "function_call_output" and not self.conversation.calls(item["call_id"]):
            raise wrong_value("item.call_id", item["call_id"], "call ids of this conversation")
        if item["type"] == "mcp_approval_response":
            self._mcp.check_approval(item["approval_request_id"])
        previous = event.get("previous_item_id")
        if previous is not None and not isinstance(previous, str):
            raise wrong_type("previous_item_id", "a string", previous)
        if self.conversation.full:
            raise ProtocolError("conversation_full", "The conversation holds too much: delete items first.")
        if len(self._recordings) + len(sounds) > MOST_RECORDINGS:
            message = "Too much sound waits to be recognised: wait for its transcripts, or give them."
            raise ProtocolError("input_audio_overrun", message, "item.content")
        self._withdraw()  # speculation did not know of this item
        yield from self._add_item(item, previous)
        if item.get("role") == "user":
            yield from self._settle()
        yield from put_in(item)
        language = self.session.listen(live=False).language
        for index, samples in sounds:
            self._recorded += 1
            self._recordings[self._recorded] = item, index
            yield Recognise(self._recorded, samples, RATES[self._input_format], language)
        if item["type"] == "mcp_approval_response":
            yield from self._mcp.approve(item)

    def _add_item(self, item: Item, previous_item_id: str | None) -> Step:
        self.conversation.insert(item, previous_item_id)
        fields = {
            "previous_item_id": self.conversation.previous_id(item["id"]),
            "item": copy.deepcopy(item),
        }
        yield {"type": "conversation.item.added", **fields}
        yield {"type": "conversation.item.done", **copy.deepcopy(fields)}

    def _item_retrieve(self, event: Event) -> Step:
        item = self._existing_item(event, "retrieve", "retrieving")
        yield {"type": "conversation.item.retrieved", "item": copy.deepcopy(item)}

    def _item_delete(self, event: Event) -> Step:
        item = self._existing_item(event, "delete", "deleting")
        self._withdraw()  # speculation knew of this item
        self.conversation.delete(item["id"])
        if (sent := self._sent.pop(item["id"], None)) is not None:
            yield from self._settle(sent)
        yield {"type": "conversation.item.deleted", "item_id": item["id"]}

    def _item_truncate(self, event: Event) -> Step:
        item = self._existing_item(event, "truncate", "truncating")
        for name in ("content_index", "audio_end_ms"):
            if name not in event:
                raise missing(name)
            if isinstance(event[name], bool) or not isinstance(event[name], int) or event[name] < 0:
                raise wrong_type(name, "a non-negative integer", event[name])
        if event["content_index"] != 0:
            raise wrong_value("content_index", event["content_index"], "0")
        if not self._was_spoken(item):
            raise ProtocolError(None, "Only model output audio messages can be truncated")
        if (sent := self._sent.get(item["id"])) is not None:
            self._truncate(sent, event["audio_end_ms"])
            yield StopPlaying(item["id"], event["audio_end_ms"])
            yield from self._settle(sent)
        response = next((r for r in self._audible.values() if r.message is item), None)
        if response is not None and response.queued_text:
            # Over WebRTC the server owns the playback clock: what was heard is known better here.
            yield FlushPlayout()
            return
        yield {
            "type": "conversation.item.truncated",
            "item_id": item["id"],
            "content_index": event["content_index"],
            "audio_end_ms": event["audio_end_ms"],
        }

    def _was_spoken(self, item: Item) -> bool:
        """The item is a spoken answer of the model, or one that is being made."""
        if parts := item.get("content"):
            return all(part["type"] == "output_audio" for part in parts)
        return any(each.message is item and each.config.spoken for each in self._responses.values())

    def _truncate(self, response: Response, end_ms: int) -> None:
        """A client that plays the sound itself says how much of it was heard. Raises ProtocolError."""
        made_ms = int(1000 * response.seconds)
        if end_ms > made_ms:
            message = f"Audio content of {made_ms}ms is already shorter than {end_ms}ms"
            raise ProtocolError("invalid_value", message, "audio_end_ms")
        response.heard_text = response.text_until(end_ms / 1000)
        self._trim(response, response.heard_text)

    def _existing_item(self, event: Event, verb: str, doing: str) -> Item:
        if "item_id" not in event:
            raise missing("item_id")
        if not isinstance(event["item_id"], str):
            raise wrong_type("item_id", "a string", event["item_id"])
        item = self.conversation.find(event["item_id"])
        if item is None:
            message = f"Error {doing} item: the item with id '{event['item_id']}' does not exist."
            raise ProtocolError(f"item_{verb}_invalid_item_id", message)
        return item

    def _response_create(self, event: Event) -> Step:
        config = self._response_config(event.get("response"))
        if len(self._deferred) >= MOST_DEFERRED:
            message = "Too many responses wait for words or tools already: wait until they are created."
            raise ProtocolError("too_many_responses", message)
        if self._lacks_tools(event, config):
            self._mcp.check_room(config.servers)
            yield from self._mcp.list_new(config.servers)
            self._deferred.append(event)
            return
        if not config.out_of_band and self._words_are_missing and config.input is None:
            self._deferred.append(event)
            return
        active = self.active
        if active is not None and not config.out_of_band:
            raise ProtocolError(
                "conversation_already_has_active_response",
                f"Conversation already has an active response in progress: {active.id}. Wait until the "
                "response is finished before creating a new one.",
            )
        prompt = self._prompt(config)
        self._withdraw()
        yield from self._respond(config, prompt)

    @property
    def _words_are_missing(self) -> bool:
        """Something that the caller said is in the conversation, or soon will be, without its words."""
        return bool(self._commits or self._turns.unheard or self._recordings)

    def _response_config(self, overrides: Any = None) -> ResponseConfig:
        """Settings of one response, the tools of its MCP servers among them. Raises ProtocolError."""
        return self._mcp.offer(self.session.response(overrides))

    def _lacks_tools(self, event: Event, config: ResponseConfig) -> bool:
        """A response with servers of its own waits for them: there is no other that they are for."""
        return bool((event.get("response") or {}).get("tools")) and self._mcp.waits_for(config.servers)

    def _run_deferred(self) -> Step:
        """Requests that waited for the caller's words, or for tools."""
        if self._words_are_missing:
            return
        deferred, self._deferred = self._deferred, []
        for event in deferred:
            try:
                yield from self._response_create(event)
            except ProtocolError as error:
                yield self._error(error, event.get("event_id"))

    def _response_cancel(self, event: Event) -> Step:
        wanted = event.get("response_id")
        response = self.active
        if wanted is not None:
            response = next(
                (r for r in self._responses.values() if r.id == wanted and r.state is ResponseState.LIVE),
                None,
            )
        if response is None:
            if not self._mcp.open_calls(wanted):
                message = "Cancellation failed: no active response found"
                raise ProtocolError("response_cancel_not_active", message)
            yield from self._mcp.cancel(wanted)
            return
        yield from self._cancel(response, "client_cancelled")
        yield from self._mcp.cancel(response.id)
        if response.id in self._audible and not response.queued_text:
            del self._audible[response.id]
            self._trim(response, "")


def _request(config: ResponseConfig, prompt: tuple[Any, ...]) -> Generate:
    return Generate(
        history=prompt,
        instructions=config.instructions,
        tools=config.tools,
        tool_choice=config.tool_choice,
        parallel_tool_calls=config.parallel_tool_calls,
        max_output_tokens=config.max_output_tokens,
        voice=config.voice,
    )


def _server_error(reason: str) -> ProtocolError:
    return ProtocolError("server_error", reason, type="server_error")


def _outcome(response: Response) -> tuple[str, dict[str, Any] | None]:
    """Status and its details, for a response whose stream has ended."""
    if response.failure is not None:
        error = response.failure.body()
        del error["param"]
        return "failed", {"type": "failed", "error": error}
    reason = response.finish_reason.reason if response.finish_reason else "stop"
    if reason == "length":
        return "incomplete", {"type": "incomplete", "reason": "max_output_tokens"}
    if reason == "content_filter":
        return "incomplete", {"type": "incomplete", "reason": "content_filter"}
    return "completed", None
