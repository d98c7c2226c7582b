"""OrderChecker: whether the server events of one session come in the order that clients rely on.

Feed it every event that one client got, in order. It keeps the state of each response, of each of its
items and parts, of the caller's turns and of the conversation, and raises AssertionError with a
sentence that says what was wrong with an event. Section 9 of the protocol reference is its source:

1. ``response.output_item.added`` comes before ``conversation.item.added`` of the same item;
   ``conversation.item.done`` before ``response.output_item.done``, and that before ``response.done``.
2. ``content_part.added`` comes before the part's deltas, ``*.done`` before ``content_part.done``.
3. ``output_audio.done`` comes before ``output_audio_transcript.done``.
4. Nothing of a response follows its ``response.done`` but ``output_audio_buffer.*`` and truncation.
5. ``previous_item_id`` is the item in front; null only for the first.
6. ``mcp_list_tools.in_progress`` follows the item; ``completed`` or ``failed`` comes before its
   ``conversation.item.done``.
7. An ``mcp_call`` may outlive its response: ``response.mcp_call.completed`` or ``failed``, the end of the
   item and nothing else then follow ``response.done``. An ``mcp_approval_request`` is whole from the start.

Beyond that: deltas concatenate to what is done, every response that is created is done once, and two
responses are never open in the default conversation. And of its sequences:

a. The end of a turn, its commit, its item and the end of that item come in one piece.
d. The caller's speech ends what is being said, if the session says so: closing events, ``response.done``
   (``turn_detected``), ``output_audio_buffer.cleared`` for what sounds, truncation, and nothing between.
e. A response that is cancelled says who cancelled it; whoever it was, nothing of it follows.
f. Without turn detection nobody starts to speak. A cleared input buffer never becomes a turn.
g. An out-of-band response touches no conversation, is not interrupted, and gives its metadata back.
i. A timeout comes into silence, and becomes an item without words and a response.
j. A session that transcribes has no responses.
k. An item that a client made is added and done at once, in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_TEXT_STREAMS = {
    "response.output_text": ("text", "text"),
    "response.output_audio_transcript": ("audio", "transcript"),
}
"""Stream: the type of its part, and the member of ``.done`` and of the part that holds the whole."""


_REASONS = {
    "cancelled": ("turn_detected", "client_cancelled"),
    "incomplete": ("max_output_tokens", "content_filter"),
}
_BEGINNINGS = {
    "input_audio_buffer.speech_started",
    "input_audio_buffer.committed",
    "input_audio_buffer.timeout_triggered",
    "conversation.item.added",
    "response.output_item.added",
}
_SOUND = {"output_audio_buffer.cleared", "conversation.item.truncated"}


@dataclass
class _Part:
    kind: str
    text: str = ""
    stream_done: bool = False
    audio_done: bool = False
    done: bool = False


@dataclass
class _Item:
    id: str
    kind: str
    parts: list[_Part] = field(default_factory=list)
    call: tuple[Any, Any] = (None, None)
    """Name and ``call_id`` of a function call."""
    arguments: str = ""
    arguments_done: bool = False
    announced: bool = False
    tool: str = ""
    """Of an ``mcp_call``: "", ``in_progress``, ``completed`` or ``failed``."""
    final: Json | None = None
    """The item of ``response.output_item.done``."""


@dataclass
class _Response:
    id: str
    wire: Json
    """As it was created."""
    items: list[_Item] = field(default_factory=list)
    done: bool = False
    playout: str = ""
    """"", ``started``, ``stopped`` or ``cleared``."""

    @property
    def in_conversation(self) -> bool:
        return self.wire["conversation_id"] is not None


@dataclass
class _Turn:
    started_ms: int | None = None
    stopped: bool = False
    committed: bool = False
    transcribed: bool = False
    dropped: bool = False
    silent: bool = False
    """Nothing was said in it: it is there since a timeout passed."""


@dataclass
class _Interruption:
    """What the caller's speech must still bring to an end."""

    response: str | None
    sounding: set[str]

    @property
    def over(self) -> bool:
        return self.response is None and not self.sounding


@dataclass
class _Next:
    """The event that must come next."""

    what: str
    fits: Callable[[Json], bool]


class OrderChecker:
    """``feed`` every event, then ``finish``; both raise AssertionError.

    ``late``: the connection joined a session that had begun. What is said of something that it has not seen
    the beginning of is let through.
    """

    def __init__(self, *, late: bool = False) -> None:
        self._late = late
        self._session: Json = {}
        self._event_ids: set[str] = set()
        self._responses: dict[str, _Response] = {}
        self._items: dict[str, tuple[_Response, _Item]] = {}
        self._conversation: list[str] = []
        self._undone: set[str] = set()  # in the conversation, conversation.item.done still to come
        self._deleted: set[str] = set()  # made by a response, deleted by the client
        self._past: set[str] = set()  # ids that were ever in the conversation
        self._previous: dict[str, str | None] = {}  # previous_item_id at insert time
        self._listings: dict[str, str] = {}  # by item id: added, in_progress or over
        self._turns: dict[str, _Turn] = {}
        self._recordings: set[tuple[str, int]] = set()  # item and part: sound whose words are to come
        self._speaking: str | None = None  # the turn that has begun and is not over
        self._forgetting = False  # the ears are told to forget; a turn that they have begun has no end
        self._interrupted: _Interruption | None = None
        self._next: _Next | None = None
        self._missed: set[str] = set()  # ids of what had begun before a late connection
        self._handlers: dict[str, Callable[[Json], None]] = {
            "error": self._error,
            "session.created": self._session_created,
            "session.updated": self._session_updated,
            "input_audio_buffer.cleared": self._input_cleared,
            "input_audio_buffer.timeout_triggered": self._timeout,
            "input_audio_buffer.speech_started": self._speech_started,
            "input_audio_buffer.speech_stopped": self._speech_stopped,
            "input_audio_buffer.committed": self._input_committed,
            "conversation.item.added": self._item_added,
            "conversation.item.done": self._item_done,
            "conversation.item.retrieved": self._item_retrieved,
            "conversation.item.deleted": self._item_deleted,
            "conversation.item.truncated": self._item_truncated,
            "conversation.item.input_audio_transcription.delta": self._transcript_delta,
            "conversation.item.input_audio_transcription.completed": self._transcript_end,
            "conversation.item.input_audio_transcription.failed": self._transcript_end,
            "response.created": self._response_created,
            "response.done": self._response_done,
            "response.output_item.added": self._output_item_added,
            "response.output_item.done": self._output_item_done,
            "response.content_part.added": self._part_added,
            "response.content_part.done": self._part_done,
            "response.output_text.delta": self._text_delta,
            "response.output_text.done": self._text_done,
            "response.output_audio_transcript.delta": self._text_delta,
            "response.output_audio_transcript.done": self._text_done,
            "response.output_audio.delta": self._audio_delta,
            "response.output_audio.done": self._audio_done,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.function_call_arguments.done": self._arguments_done,
            "response.mcp_call_arguments.delta": self._mcp_arguments_delta,
            "response.mcp_call_arguments.done": self._mcp_arguments_done,
            "response.mcp_call.in_progress": self._tool_moves,
            "response.mcp_call.completed": self._tool_moves,
            "response.mcp_call.failed": self._tool_moves,
            "mcp_list_tools.in_progress": self._listing_begins,
            "mcp_list_tools.completed": self._listing_ends,
            "mcp_list_tools.failed": self._listing_ends,
            "output_audio_buffer.started": self._playout_started,
            "output_audio_buffer.stopped": self._playout_stopped,
            "output_audio_buffer.cleared": self._playout_cleared,
        }
        self._kind = ""

    def feed(self, event: Json) -> None:
        """The next event. Raises AssertionError when it must not come now."""
        self._kind = event["type"]
        id = event.get("event_id")
        self._must(isinstance(id, str) and id.startswith("event_"), f"event_id is {id!r}")
        self._must(id not in self._event_ids, f"event_id {id} was used before")
        first = ("session.created", "error")  # a client that is turned away gets no session
        self._must(bool(self._event_ids) or self._kind in first, "comes before session.created")
        self._event_ids.add(str(id))
        self._check_expected(event)
        if self._late and self._began_before(event):
            return
        self._check_kind()
        self._check_interruption(event)
        handler = self._handlers.get(self._kind)
        if handler is not None:
            handler(event)

    def finish(self) -> None:
        """The session is over, or nothing more is expected. Raises AssertionError for what is still open."""
        self._kind = "the end"
        open_responses = [response.id for response in self._responses.values() if not response.done]
        self._must(not open_responses, f"these responses are not done: {open_responses}")
        undone = sorted(id for id in self._undone if not self._waits_for_a_server(id))
        self._must(not undone, f"these items are not done: {undone}")
        items = [item for response in self._responses.values() for item in response.items]
        ended = [item.id for item in items if item.final is None and item.tool in ("completed", "failed")]
        self._must(not ended, f"these calls have ended and are not done: {ended}")
        self._must(self._next is None, f"comes instead of {self._next and self._next.what}")

    def _must(self, fact: bool, otherwise: str) -> None:
        if not fact:
            raise AssertionError(f"{self._kind}: {otherwise}")

    def _check_expected(self, event: Json) -> None:
        expected, self._next = self._next, None
        if expected is not None:
            self._must(expected.fits(event), f"comes instead of {expected.what}")

    def _expect(self, kind: str, what: str, fits: Callable[[Json], bool]) -> None:
        self._next = _Next(f"{kind} of {what}", lambda event: event["type"] == kind and fits(event))

    def _check_kind(self) -> None:
        """What kind of session it is decides which events there can be."""
        if self._session.get("type") == "transcription":
            answers = ("response.", "output_audio_buffer.", "rate_limits.")
            self._must(not self._kind.startswith(answers), "comes in a session that transcribes")

    # --- what a late connection has missed -------------------------------------------------------

    def _began_before(self, event: Json) -> bool:
        """Whether this is about something that a late connection has not seen the beginning of."""
        response_id = event.get("response_id") or (event.get("response") or {}).get("id")
        item_id = event.get("item_id") or (event.get("item") or {}).get("id")
        if response_id is not None:
            before = self._kind != "response.created" and response_id not in self._responses
        elif item_id is not None:
            before = item_id in self._missed or (
                self._kind not in _BEGINNINGS
                and item_id not in self._items
                and item_id not in self._turns
                and item_id not in self._past
            )
        else:
            before = False
        if before and item_id is not None:
            self._missed.add(item_id)
        if self._kind == "conversation.item.added":
            self._know(event["previous_item_id"])
            if before:
                self._insert(event)
                self._undone.discard(str(item_id))
        elif before and self._kind == "conversation.item.deleted" and item_id in self._conversation:
            self._conversation.remove(item_id)
        return before

    def _know(self, item_id: str | None) -> None:
        if item_id is not None and item_id not in self._conversation:
            self._conversation.insert(0, item_id)
            self._missed.add(item_id)

    # --- session, turns, conversation ------------------------------------------------------------

    def _error(self, event: Json) -> None:
        names = {"type", "code", "message", "param", "event_id"}
        self._must(set(event["error"]) == names, f"an error has the members {sorted(event['error'])}")

    def _session_created(self, event: Json) -> None:
        self._must(not self._session, "is not the first event")
        self._session = event["session"]

    def _session_updated(self, event: Json) -> None:
        before, after = self._session, event["session"]
        for name in ("id", "type", "object", "expires_at"):
            self._must(after[name] == before[name], f"the {name} of a session does not change")
        detected = self._turn_detection is not None
        self._session = after
        if detected is not (self._turn_detection is not None):
            self._forget()

    @property
    def _turn_detection(self) -> Json | None:
        detection: Json | None = self._session["audio"]["input"]["turn_detection"]
        return detection

    def _speech_started(self, event: Json) -> None:
        id, detection = event["item_id"], self._turn_detection
        self._must(id not in self._turns and id not in self._past, f"{id} was used before")
        if self._speaking is not None:
            self._must(self._forgetting, f"{self._speaking} is not over")
            self._forget()
            self._forgetting = False
        self._must(event["audio_start_ms"] >= 0, "starts before all sound")
        if detection is None:
            raise AssertionError(f"{self._kind}: there is no turn detection")
        self._speaking = id
        self._turns[id] = _Turn(started_ms=event["audio_start_ms"])
        if detection.get("interrupt_response"):
            self._begin_interruption()

    def _begin_interruption(self) -> None:
        responses = self._responses.values()
        open_ = (response.id for response in responses if response.in_conversation and not response.done)
        sounding = {response.id for response in responses if response.playout == "started"}
        interruption = _Interruption(next(open_, None), sounding)
        self._interrupted = None if interruption.over else interruption

    def _check_interruption(self, event: Json) -> None:
        """Until all that was being said is over, nothing else happens."""
        interrupted = self._interrupted
        if interrupted is None or self._kind.startswith(("rate_limits.", "response.mcp_call.")):
            return
        if self._kind == "response.done":
            wire = event["response"]
            self._must(wire["id"] == interrupted.response, f"{wire['id']} was not interrupted")
            reason = (wire["status_details"] or {}).get("reason")
            self._must(reason == "turn_detected", f"{wire['id']} is {wire['status']}: {reason}")
            interrupted.response = None
        elif self._kind in _SOUND:
            self._must(interrupted.response is None, f"{interrupted.response} is not done")
            interrupted.sounding.discard(event.get("response_id", ""))
        else:
            response_id = event.get("response_id") or self._maker(event)
            closes = self._kind.endswith(".done") and response_id == interrupted.response
            self._must(closes, f"comes before {interrupted} is over")
        if interrupted.over:
            self._interrupted = None

    def _maker(self, event: Json) -> str | None:
        """Id of the response that made the item."""
        owner = self._items.get((event.get("item") or {}).get("id", ""))
        return owner[0].id if owner else None

    def _speech_stopped(self, event: Json) -> None:
        id = event["item_id"]
        turn = self._turns.get(id)
        if turn is None or turn.started_ms is None:
            raise AssertionError(f"{self._kind}: the speech of {id} never started")
        self._must(not turn.stopped and not turn.committed and not turn.dropped, f"{id} is over already")
        self._must(event["audio_end_ms"] > turn.started_ms, "ends before it started")
        turn.stopped = True
        self._expect("input_audio_buffer.committed", id, lambda event: event["item_id"] == id)

    def _input_committed(self, event: Json) -> None:
        id, previous = event["item_id"], event["previous_item_id"]
        turn = self._turns.setdefault(id, _Turn())
        self._must(not turn.committed and not turn.dropped, f"{id} is over already")
        last = self._conversation[-1] if self._conversation else None
        self._must(previous == last or self._late, f"{previous} is not the last item")
        turn.committed = True
        self._speaking = None
        self._expect(
            "conversation.item.added",
            f"{id} after {previous}",
            lambda event: event["item"]["id"] == id and event["previous_item_id"] == previous,
        )

    def _input_cleared(self, _event: Json) -> None:
        self._forget()

    def _forget(self) -> None:
        """The turn that was being spoken will never be."""
        self._forgetting = True
        if self._speaking is not None:
            self._turns[self._speaking].dropped = True
            self._speaking = None

    def _timeout(self, event: Json) -> None:
        id, detection = event["item_id"], self._turn_detection
        self._must(bool(detection and detection.get("idle_timeout_ms")), "nobody asked for it")
        self._must(id not in self._turns and id not in self._past, f"{id} was used before")
        self._must(self._speaking is None, f"{self._speaking} is being said")
        busy = [r.id for r in self._responses.values() if not r.done or r.playout == "started"]
        self._must(not busy, f"{busy} can be heard or is being made")
        self._must(event["audio_end_ms"] > event["audio_start_ms"], "ends before it started")
        self._turns[id] = _Turn(silent=True)
        self._expect("input_audio_buffer.committed", id, lambda event: event["item_id"] == id)

    def _item_added(self, event: Json) -> None:
        item, previous = event["item"], event["previous_item_id"]
        id = item["id"]
        self._must(id not in self._conversation, f"{id} is in the conversation already")
        self._must(previous is None or previous in self._conversation, f"{previous} is not there")
        if id in self._items and id not in self._deleted:
            self._check_first_announcement(item)
        else:
            self._check_given(event)
        self._insert(event)

    def _insert(self, event: Json) -> None:
        item, previous = event["item"], event["previous_item_id"]
        id = item["id"]
        self._conversation.insert(0 if previous is None else self._conversation.index(previous) + 1, id)
        self._previous[id] = previous
        if item["type"] == "mcp_list_tools":
            self._must(item["tools"] == [], f"{id} has tools before they are listed")
            self._listings[id] = "added"
        self._undone.add(id)
        self._past.add(id)
        if id not in self._turns:
            parts = enumerate(item.get("content", ()))
            self._recordings |= {(id, n) for n, part in parts if part.get("transcript", "") is None}

    def _check_given(self, event: Json) -> None:
        """An item that no response made is complete."""
        item, turn = event["item"], self._turns.get(event["item"]["id"])
        self._must(item.get("status") != "in_progress", f"{item['id']} belongs to no response")
        if turn is not None and turn.committed and item["id"] not in self._past:
            spoken = [part["type"] for part in item["content"]] == ["input_audio"]
            self._must(item["role"] == "user" and spoken, f"{item['id']} is not what was said")
        if item["type"] == "mcp_list_tools":
            return
        self._expect(
            "conversation.item.done",
            item["id"],
            lambda done: (done["item"], done["previous_item_id"]) == (item, event["previous_item_id"]),
        )

    def _check_first_announcement(self, item: Json) -> None:
        owner = self._items[item["id"]]
        response, made = owner
        self._must(response.in_conversation, f"{item['id']} is out of band")
        self._must(not response.done and made.final is None, f"{item['id']} is done already")
        self._must(not made.parts and not made.arguments, f"{item['id']} has content already")
        made.announced = True

    def _waits_for_a_server(self, id: str) -> bool:
        if self._is_mcp_call(id):
            return self._items[id][1].tool in ("", "in_progress")
        return self._listings.get(id) == "in_progress"

    def _is_mcp_call(self, id: str) -> bool:
        return id in self._items and self._items[id][1].kind == "mcp_call"

    def _listing_begins(self, event: Json) -> None:
        self._must(self._listings.get(event["item_id"]) == "added", f"{event['item_id']} is no new list")
        self._listings[event["item_id"]] = "in_progress"

    def _listing_ends(self, event: Json) -> None:
        self._must(self._listings.get(event["item_id"]) == "in_progress", "nothing is listed there")
        self._listings[event["item_id"]] = "over"

    def _item_done(self, event: Json) -> None:
        id = event["item"]["id"]
        self._must(id in self._undone, f"{id} was not added, or is done already")
        index = self._conversation.index(id)
        front = self._conversation[index - 1] if index else None
        self._must(
            event["previous_item_id"] in (front, self._previous[id]),
            f"{event['previous_item_id']} is not in front of {id}",
        )
        if event["item"]["type"] == "mcp_list_tools":
            self._must(self._listings[id] == "over", f"{id} is still being listed")
        if id in self._items and id not in self._deleted:
            _, made = self._items[id]
            self._must(made.final is None, f"{id}: response.output_item.done came before")
            self._check_content(made, event["item"])
        self._undone.discard(id)
        turn = self._turns.get(id)
        if turn is not None and turn.silent:
            turn.silent = False
            self._turns[id].dropped = True  # it has no words
            self._expect("response.created", "the question", lambda event: True)

    def _item_retrieved(self, event: Json) -> None:
        self._must(event["item"]["id"] in self._conversation, f"{event['item']['id']} is not there")

    def _item_deleted(self, event: Json) -> None:
        self._must(event["item_id"] in self._conversation, f"{event['item_id']} is not there")
        self._conversation.remove(event["item_id"])
        self._undone.discard(event["item_id"])
        if event["item_id"] in self._items:
            self._deleted.add(event["item_id"])  # a client may make another with the same id

    def _item_truncated(self, event: Json) -> None:
        id, index = event["item_id"], event["content_index"]
        self._must(id in self._conversation, f"{id} is not there")
        self._must(event["audio_end_ms"] >= 0, "audio_end_ms is negative")
        self._must(id in self._items and id not in self._deleted, f"{id} was not said by the model")
        parts = self._items[id][1].parts
        self._must(index < len(parts) and parts[index].kind == "audio", f"part {index} of {id} is no speech")

    def _transcript_delta(self, event: Json) -> None:
        turn = self._turns.get(event["item_id"])
        if turn is None:
            raise AssertionError(f"{self._kind}: nothing was said in {event['item_id']}")
        self._must(not turn.transcribed, f"the transcript of {event['item_id']} is complete already")
        self._must(not turn.dropped, f"nothing was said in {event['item_id']}")

    def _transcript_end(self, event: Json) -> None:
        recording = event["item_id"], event.get("content_index", 0)
        if recording in self._recordings:
            self._recordings.remove(recording)
            return
        self._transcript_delta(event)
        turn = self._turns[event["item_id"]]
        self._must(turn.committed, f"{event['item_id']} is not committed")
        turn.transcribed = True

    # --- responses -------------------------------------------------------------------------------

    def _response_created(self, event: Json) -> None:
        wire = event["response"]
        id, in_conversation = wire["id"], wire["conversation_id"] is not None
        self._must(id not in self._responses, f"{id} was created before")
        self._must(wire["status"] == "in_progress", f"{id} is {wire['status']}")
        self._must(wire["output"] == [] and wire["usage"] is None, f"{id} has output or usage")
        self._must(wire["status_details"] is None, f"{id} has details of its status")
        if in_conversation:
            open_ = [r.id for r in self._responses.values() if r.in_conversation and not r.done]
            self._must(not open_, f"{open_} is still open in the default conversation")
            others = {r.wire["conversation_id"] for r in self._responses.values() if r.in_conversation}
            self._must(others <= {wire["conversation_id"]}, "a session has one conversation")
        self._responses[id] = _Response(id, wire)

    def _open_response(self, id: str) -> _Response:
        response = self._responses.get(id)
        if response is None:
            raise AssertionError(f"{self._kind}: {id} was never created")
        self._must(not response.done, f"{id} is done")
        return response

    def _output_item_added(self, event: Json) -> None:
        response, item = self._open_response(event["response_id"]), event["item"]
        self._must(event["output_index"] == len(response.items), f"output_index {event['output_index']}")
        self._must(item["id"] not in self._items and item["id"] not in self._past, f"{item['id']} is used")
        self._must(item["status"] == "in_progress", f"{item['id']} is {item['status']}")
        whole = item["type"] == "mcp_approval_request"
        empty = not item.get("content") and not item.get("arguments")
        self._must(whole or empty, f"{item['id']} is not empty")
        made = _Item(item["id"], item["type"], call=(item.get("name"), item.get("call_id")))
        response.items.append(made)
        self._items[made.id] = (response, made)
        if response.in_conversation:
            self._expect("conversation.item.added", made.id, lambda event: event["item"]["id"] == made.id)

    def _open_item(self, event: Json, kind: str) -> _Item:
        response = self._open_response(event["response_id"])
        index = event["output_index"]
        self._must(0 <= index < len(response.items), f"output_index {index} was not added")
        item = response.items[index]
        self._must(item.id == event["item_id"], f"output_index {index} is {item.id}")
        self._must(item.kind == kind, f"{item.id} is a {item.kind}")
        self._must(item.final is None, f"{item.id} is done")
        self._must(item.announced or not response.in_conversation, f"{item.id} is not in the conversation")
        return item

    def _part_added(self, event: Json) -> None:
        item, part = self._open_item(event, "message"), event["part"]
        self._must(event["content_index"] == len(item.parts), f"content_index {event['content_index']}")
        self._must(not part.get("text") and not part.get("transcript"), "the part is not empty")
        item.parts.append(_Part(part["type"]))

    def _open_part(self, event: Json, kind: str = "") -> _Part:
        item, index = self._open_item(event, "message"), event["content_index"]
        self._must(0 <= index < len(item.parts), f"content part {index} of {item.id} was not added")
        part = item.parts[index]
        self._must(not part.done, f"content part {index} of {item.id} is done")
        self._must(not kind or part.kind == kind, f"the part is of type {part.kind}")
        return part

    def _text_delta(self, event: Json) -> None:
        part = self._open_part(event, _TEXT_STREAMS[self._kind.removesuffix(".delta")][0])
        self._must(not part.stream_done, "the text is done")
        part.text += event["delta"]

    def _text_done(self, event: Json) -> None:
        kind, member = _TEXT_STREAMS[self._kind.removesuffix(".done")]
        part = self._open_part(event, kind)
        self._must(not part.stream_done, "the text is done already")
        self._must(part.audio_done or kind == "text", "comes before response.output_audio.done")
        self._must(event[member] == part.text, f"{event[member]!r} is not what the deltas gave")
        part.stream_done = True

    def _audio_delta(self, event: Json) -> None:
        self._must(not self._open_part(event, "audio").audio_done, "the audio is done")

    def _audio_done(self, event: Json) -> None:
        part = self._open_part(event, "audio")
        self._must(not part.audio_done, "the audio is done already")
        part.audio_done = True

    def _part_done(self, event: Json) -> None:
        part = self._open_part(event)
        self._must(part.stream_done, "comes before the end of its text")
        whole = event["part"].get("transcript" if part.kind == "audio" else "text")
        self._must(event["part"]["type"] == part.kind, f"the part was added as {part.kind}")
        self._must(whole == part.text, f"{whole!r} is not what the deltas gave")
        part.done = True

    def _mcp_arguments_delta(self, event: Json) -> None:
        self._arguments_delta(event, "mcp_call")

    def _mcp_arguments_done(self, event: Json) -> None:
        self._arguments_done(event, "mcp_call")

    def _tool_moves(self, event: Json) -> None:
        after = self._kind.rpartition(".")[2]
        response, item = self._items.get(event["item_id"], (None, None))
        if response is None or item is None or item.kind != "mcp_call":
            raise AssertionError(f"{self._kind}: {event['item_id']} is no call")
        self._must(response.items[event["output_index"]] is item, f"{item.id} has another output_index")
        self._must(item.arguments_done, f"the arguments of {item.id} are not done")
        before = {"in_progress": ("",), "completed": ("in_progress",), "failed": ("", "in_progress")}[after]
        self._must(item.tool in before, f"{item.id} is {item.tool}")
        item.tool = after

    def _arguments_delta(self, event: Json, kind: str = "function_call") -> None:
        item = self._open_item(event, kind)
        self._must(not item.arguments_done, "the arguments are done")
        self._must(event.get("call_id") == item.call[1], f"{item.id} is the call {item.call[1]}")
        item.arguments += event["delta"]

    def _arguments_done(self, event: Json, kind: str = "function_call") -> None:
        item = self._open_item(event, kind)
        self._must(not item.arguments_done, "the arguments are done already")
        self._must(event["arguments"] == item.arguments, "the arguments are not what the deltas gave")
        named = event.get("name", item.call[0]), event.get("call_id")
        self._must(named == item.call, f"{item.id} is a call of {item.call}")
        item.arguments_done = True

    def _check_content(self, item: _Item, wire: Json) -> None:
        self._must(wire["status"] in ("completed", "incomplete"), f"{item.id} is {wire['status']}")
        if item.kind == "mcp_approval_request":
            return
        if item.kind in ("function_call", "mcp_call"):
            self._must(item.kind == "function_call" or item.tool in ("completed", "failed"), "runs still")
            self._must(item.arguments_done, f"the arguments of {item.id} are not done")
            self._must(wire["arguments"] == item.arguments, f"{item.id} has other arguments")
            self._must(
                (wire["name"], wire.get("call_id")) == item.call, f"{item.id} is a call of {item.call}"
            )
            return
        self._must(all(part.done for part in item.parts), f"a content part of {item.id} is not done")
        texts = [part.get("transcript", part.get("text")) for part in wire["content"]]
        self._must(texts == [part.text for part in item.parts], f"{item.id} has other content: {texts}")

    def _output_item_done(self, event: Json) -> None:
        wire = event["item"]
        late = self._is_mcp_call(wire["id"]) and event["response_id"] in self._responses
        id = event["response_id"]
        response = self._responses[id] if late else self._open_response(id)
        index = event["output_index"]
        self._must(0 <= index < len(response.items), f"output_index {index} was not added")
        item = response.items[index]
        self._must(item.id == wire["id"], f"output_index {index} is {item.id}")
        self._must(item.final is None, f"{item.id} is done already")
        self._must(item.id not in self._undone, f"comes before conversation.item.done of {item.id}")
        self._must(item.announced or not response.in_conversation, f"{item.id} is not in the conversation")
        self._check_content(item, wire)
        cut = self._interrupted is not None
        self._must(not cut or wire["status"] == "incomplete", f"{item.id} was interrupted, and is complete")
        item.final = wire

    def _response_done(self, event: Json) -> None:
        wire = event["response"]
        response = self._open_response(wire["id"])
        unfinished = [item.id for item in response.items if item.final is None and item.kind != "mcp_call"]
        self._must(not unfinished, f"these items are not done: {unfinished}")
        self._must(
            [item["id"] for item in wire["output"]] == [each.id for each in response.items], "other items"
        )
        same = all(
            each.final in (None, item) for each, item in zip(response.items, wire["output"], strict=True)
        )
        self._must(same, "the output is not its items")
        for name in ("conversation_id", "metadata", "output_modalities", "audio", "max_output_tokens"):
            self._must(wire[name] == response.wire[name], f"the {name} of {response.id} changed")
        self._check_status(wire)
        response.done = True

    def _check_status(self, wire: Json) -> None:
        status, details = wire["status"], wire["status_details"]
        own = (item for item in wire["output"] if item["type"] != "mcp_call")
        incomplete = [item["id"] for item in own if item["status"] != "completed"]
        if status == "completed":
            self._must(not incomplete, f"completed with incomplete items: {incomplete}")
            self._must(details is None, f"completed with details: {details}")
            return
        self._must(not incomplete[:-1], f"more than the last item is incomplete: {incomplete}")
        kind, reason = (details or {}).get("type"), (details or {}).get("reason")
        self._must(kind == status, f"{status} with details of {kind}")
        self._must(status == "failed" or reason in _REASONS.get(status, ()), f"{status} since {reason}")
        if reason == "turn_detected":
            self._must(wire["conversation_id"] is not None, "speech interrupts the default conversation only")
            self._must(self._speaking is not None, "nobody speaks")

    # --- sound -----------------------------------------------------------------------------------

    def _playout(self, event: Json) -> _Response:
        response = self._responses.get(event["response_id"])
        if response is None:
            raise AssertionError(f"{self._kind}: {event['response_id']} was never created")
        self._must(
            response.playout not in ("stopped", "cleared"),
            f"the sound of {response.id} is {response.playout} already",
        )
        return response

    def _playout_started(self, event: Json) -> None:
        response = self._playout(event)
        self._must(not response.playout, f"the sound of {response.id} started before")
        spoken = any(part.kind == "audio" for item in response.items for part in item.parts)
        self._must(spoken, f"{response.id} has no audio part")
        response.playout = "started"

    def _playout_stopped(self, event: Json) -> None:
        response = self._playout(event)
        self._must(response.playout == "started", f"the sound of {response.id} did not start")
        self._must(response.done, f"{response.id} is not done")
        response.playout = "stopped"

    def _playout_cleared(self, event: Json) -> None:
        self._playout(event).playout = "cleared"
