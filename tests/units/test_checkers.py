"""What is held against every event of every test is itself held against events that are wrong.

Real conversations are recorded, then spoilt in one place; the sentence says what must be noticed.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.protocol.order import OrderChecker
from tests.protocol.validate_event import Validator
from tests.units.caller import Caller, Json, loud, quiet, scripted
from tests.units.conftest import UnitFactory
from tests.units.odd_engines import GatedLLM
from tests.units.test_order import WEATHER

Events = list[Json]
Spoiling = Callable[[Events], Events]

TRANSCRIBED = {"transcription": {"model": "whisper-1"}}


# --- conversations -------------------------------------------------------------------------------


async def barge_in(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit(scripted(llm=GatedLLM("This is the first sentence of two. "))))
    caller.configure(audio={"input": {"turn_detection": {"type": "server_vad", "create_response": False}}})
    caller.write("hi")
    await caller.unit.eventually(lambda: caller.unit.output_queue.waiting > 24_000)
    caller.listen(400)
    caller.say(loud(1000), quiet(800))
    await caller.got("conversation.item.done", 3)
    await caller.hang_up()
    return caller.events


async def cancelled(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit(scripted(llm=GatedLLM("Well, "))))
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.do("response.cancel")
    await caller.hang_up()
    return caller.events


async def by_hand(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit())
    caller.configure(audio={"input": {"turn_detection": None}})
    caller.say(loud(500))
    caller.do("input_audio_buffer.commit")
    caller.do("response.create")
    await caller.got("response.done")
    await caller.hang_up()
    return caller.events


async def out_of_band(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit())
    caller.write("hi", conversation="none", metadata={"topic": "weather"}, output_modalities=["text"])
    await caller.got("response.done")
    await caller.hang_up()
    return caller.events


async def timeout(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit())
    idle = {"type": "server_vad", "idle_timeout_ms": 5000}
    caller.configure(audio={"input": {**TRANSCRIBED, "turn_detection": idle}}, output_modalities=["text"])
    caller.write("hi")
    await caller.got("response.done")
    caller.say(quiet(5500))
    await caller.got("response.done", 2)
    await caller.hang_up()
    return caller.events


async def transcription(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit(), {"type": "transcription"})
    caller.do("session.update", session={"type": "transcription"})
    caller.say(loud(1000), quiet(800))
    await caller.got("conversation.item.input_audio_transcription.completed")
    await caller.hang_up()
    return caller.events


async def seeded(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit())
    for id, previous in (("one", None), ("three", "one"), ("two", "one"), ("zero", "root")):
        item = {"id": id, "type": "message", "role": "user", "content": [{"type": "input_text", "text": id}]}
        caller.do("conversation.item.create", item=item, previous_item_id=previous)
    caller.do("conversation.item.delete", item_id="two")
    await caller.hang_up()
    return caller.events


async def tool(new_unit: UnitFactory) -> Events:
    caller = Caller(new_unit())
    caller.configure(tools=[WEATHER], output_modalities=["text"])
    caller.write("what is the weather?")
    await caller.got("response.done")
    await caller.hang_up()
    return caller.events


# --- how they are spoilt -------------------------------------------------------------------------


def place(events: Events, kind: str, count: int = 1) -> int:
    return [index for index, event in enumerate(events) if event["type"] == kind][count - 1]


def without(kind: str, count: int = 1) -> Spoiling:
    def spoil(events: Events) -> Events:
        del events[place(events, kind, count)]
        return events

    return spoil


def with_(kind: str, path: str, value: Any, count: int = 1) -> Spoiling:
    def spoil(events: Events) -> Events:
        part = events[place(events, kind, count)]
        *way, last = path.split(".")
        for name in way:
            part = part[int(name) if isinstance(part, list) else name]
        part[last] = value
        return events

    return spoil


def moved(kind: str, before: str, count: int = 1) -> Spoiling:
    def spoil(events: Events) -> Events:
        event = events.pop(place(events, kind, count))
        events.insert(place(events, before), event)
        return events

    return spoil


def inserted(after: str, count: int = 1, **event: Any) -> Spoiling:
    def spoil(events: Events) -> Events:
        events.insert(place(events, after, count) + 1, {"event_id": "event_new", **event})
        return events

    return spoil


def again(kind: str, after: str, count: int = 1) -> Spoiling:
    def spoil(events: Events) -> Events:
        event = events[place(events, kind)] | {"event_id": "event_new"}
        events.insert(place(events, after, count) + 1, event)
        return events

    return spoil


STARTED = {"type": "input_audio_buffer.speech_started", "audio_start_ms": 0, "item_id": "item_new"}
CLEARED = {"type": "input_audio_buffer.cleared"}
TOLD = "conversation.item.input_audio_transcription.completed"
DONE = "conversation.item.done"
ADDED = "conversation.item.added"
COMMITTED = "input_audio_buffer.committed"
STOPPED = "input_audio_buffer.speech_stopped"
SPOKEN = "input_audio_buffer.speech_started"

WRONG: list[tuple[Callable[[UnitFactory], Awaitable[Events]], Spoiling, str]] = [
    # 0: connecting
    (seeded, without("session.created"), "comes before session.created"),
    (seeded, again("session.created", "conversation.item.deleted"), "is not the first event"),
    (by_hand, with_("session.updated", "session.id", "sess_other"), "the id of a session"),
    # a: a spoken turn
    (barge_in, inserted(STOPPED, **CLEARED), f"instead of {COMMITTED}"),
    (barge_in, inserted(COMMITTED, **CLEARED), f"instead of {ADDED}"),
    (barge_in, without(ADDED, 3), f"instead of {ADDED}"),
    (barge_in, without(DONE, 3), "not done"),
    (barge_in, with_(COMMITTED, "previous_item_id", None), "is not the last item"),
    (barge_in, with_(ADDED, "item.role", "assistant", 3), "is not what was said"),
    (barge_in, without(SPOKEN), "nobody speaks"),
    (transcription, without(SPOKEN), "never started"),
    (barge_in, inserted(SPOKEN, **STARTED), "before _Interruption"),
    (transcription, inserted(SPOKEN, **STARTED), "is not over"),
    # c: a tool
    (tool, with_("response.function_call_arguments.done", "name", "other"), "is a call of"),
    (tool, with_("response.function_call_arguments.delta", "call_id", "other"), "is the call"),
    (tool, with_("response.output_item.done", "item.call_id", "other"), "is a call of"),
    # d: barge-in
    (barge_in, without("response.done"), "is not done"),
    (barge_in, without("output_audio_buffer.cleared"), "before _Interruption"),
    (barge_in, moved("output_audio_buffer.cleared", "response.done"), "is not done"),
    (barge_in, moved("conversation.item.truncated", "response.done"), "is not done"),
    (barge_in, moved(STOPPED, "output_audio_buffer.cleared"), "before _Interruption"),
    (barge_in, with_("response.done", "response.status_details.reason", "client_cancelled"), "cancelled:"),
    (barge_in, with_("response.output_item.done", "item.status", "completed"), "was interrupted"),
    (barge_in, with_("output_audio_buffer.cleared", "type", "output_audio_buffer.stopped"), "before _Inter"),
    (barge_in, with_("conversation.item.truncated", "content_index", 1), "is no speech"),
    (barge_in, with_("conversation.item.truncated", "audio_end_ms", -1), "negative"),
    # e: cancelling
    (cancelled, with_("response.done", "response.status_details.reason", "turn_detected"), "nobody speaks"),
    (cancelled, with_("response.done", "response.status_details.reason", "tired"), "since tired"),
    (cancelled, with_("response.done", "response.status", "incomplete"), "with details of cancelled"),
    (cancelled, again("response.output_audio_transcript.delta", "response.done"), "is done"),
    (cancelled, again("response.done", "response.done"), "is done"),
    # f: manual turns
    (by_hand, inserted("session.updated", **STARTED), "there is no turn detection"),
    (transcription, inserted(SPOKEN, **CLEARED), "is over already"),
    (transcription, inserted(COMMITTED, **STARTED), f"instead of {ADDED}"),
    # g: out of band
    (out_of_band, with_("response.done", "response.metadata", None), "the metadata of"),
    (out_of_band, with_("response.done", "response.conversation_id", "conv_1"), "the conversation_id of"),
    # i: the idle timeout
    (timeout, with_("session.updated", "session.audio.input.turn_detection.idle_timeout_ms", None), "nobody"),
    (timeout, without(COMMITTED), f"instead of {COMMITTED}"),
    (timeout, moved("input_audio_buffer.timeout_triggered", "response.done"), "is being made"),
    (timeout, without("response.created", 2), "instead of response.created"),
    # j: transcription only
    (transcription, with_("session.updated", "session.type", "realtime"), "the type of a session"),
    (transcription, inserted(COMMITTED, type="response.created", response={"id": "x"}), "instead of"),
    (transcription, inserted(TOLD, type="response.created", response={"id": "x"}), "that transcribes"),
    (transcription, again(TOLD, TOLD), "complete already"),
    # k: seeding
    (seeded, without(DONE, 2), f"instead of {DONE}"),
    (seeded, moved(DONE, ADDED), "was not added"),
    (seeded, with_(ADDED, "previous_item_id", "nobody", 2), "is not there"),
    (seeded, with_(DONE, "item.content.0.text", "other"), f"instead of {DONE}"),
    (seeded, with_(ADDED, "item.status", "in_progress"), "belongs to no response"),
    (seeded, again("conversation.item.deleted", "conversation.item.deleted"), "is not there"),
]


def complaint(events: Events, *, late: bool = False) -> str:
    checker = OrderChecker(late=late)
    try:
        for event in events:
            checker.feed(event)
        checker.finish()
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("conversation", "spoil", "noticed"), WRONG)
async def test_what_is_out_of_order_is_noticed(
    conversation: Callable[[UnitFactory], Awaitable[Events]],
    spoil: Spoiling,
    noticed: str,
    new_unit: UnitFactory,
) -> None:
    events = await conversation(new_unit)
    assert complaint(events) == ""
    assert noticed in complaint(spoil(copy.deepcopy(events)))


async def test_an_item_of_an_out_of_band_response_enters_no_conversation(new_unit: UnitFactory) -> None:
    events = await out_of_band(new_unit)
    item = events[place(events, "response.output_item.added")]["item"]
    added = {"type": ADDED, "previous_item_id": None, "item": item}
    assert "is out of band" in complaint(inserted("response.output_item.added", **added)(events))


async def test_nobody_interrupts_an_out_of_band_response(new_unit: UnitFactory) -> None:
    events = await out_of_band(new_unit)
    done = events[place(events, "response.done")]["response"]
    done |= {"status": "cancelled", "status_details": {"type": "cancelled", "reason": "turn_detected"}}
    assert "the default conversation only" in complaint(events)


async def test_silence_has_no_words(new_unit: UnitFactory) -> None:
    events = await timeout(new_unit)
    id = events[place(events, COMMITTED)]["item_id"]
    told = inserted("response.done", 2, type=TOLD, item_id=id, transcript="Thanks for watching!")
    assert "nothing was said" in complaint(told(events))


@pytest.mark.parametrize("conversation", [barge_in, timeout, tool, transcription, seeded])
async def test_a_connection_may_join_anywhere(
    conversation: Callable[[UnitFactory], Awaitable[Events]], new_unit: UnitFactory
) -> None:
    events = await conversation(new_unit)
    session = next(event["session"] for event in reversed(events) if "session" in event)
    greeting = {"type": "session.created", "event_id": "event_greeting", "session": session}
    for index in range(1, len(events)):
        if events[index - 1]["type"] not in (COMMITTED, "response.output_item.added"):  # more comes at once
            assert complaint([greeting, *events[index:]], late=True) == "", events[index]["type"]


async def test_a_connection_that_joined_notices_what_it_has_seen_begin(new_unit: UnitFactory) -> None:
    events = await barge_in(new_unit)
    events[1:] = events[place(events, DONE) :]
    assert complaint(events, late=True) == ""
    for spoil in (without("response.done"), without("output_audio_buffer.cleared"), moved(DONE, ADDED, 3)):
        assert complaint(spoil(copy.deepcopy(events)), late=True)


# --- the shape of one event ----------------------------------------------------------------------

WHOLE = [barge_in, cancelled, by_hand, out_of_band, timeout, transcription, seeded, tool]


def parts(value: Any, path: str = "") -> list[tuple[Json, str]]:
    """Every object within, that says itself what it may hold."""
    if isinstance(value, list):
        return [part for element in value for part in parts(element, path)]
    if not isinstance(value, dict):
        return []
    free = path in ("metadata", "parameters")
    return [] if free else [(value, path), *(part for name in value for part in parts(value[name], name))]


@pytest.mark.parametrize("conversation", WHOLE)
async def test_a_member_that_nobody_knows_is_noticed_wherever_it_is(
    conversation: Callable[[UnitFactory], Awaitable[Events]], new_unit: UnitFactory
) -> None:
    validator = Validator()
    for event in await conversation(new_unit):
        assert validator.check(event) == []
        for part, _ in parts(event):
            part["colour"] = "red"
            assert any("colour: unknown" in problem for problem in validator.check(event)), event
            del part["colour"]


@pytest.mark.parametrize("conversation", WHOLE)
async def test_a_member_that_is_missing_is_noticed(
    conversation: Callable[[UnitFactory], Awaitable[Events]], new_unit: UnitFactory
) -> None:
    validator = Validator()
    for event in await conversation(new_unit):
        for part in (event, event.get("session"), event.get("response"), event.get("item")):
            for name in [*(part or ())]:
                if part is not event.get("item") or name != "object":
                    kept = part.pop(name)
                    assert validator.check(event), f"{event['type']}: {name}"
                    part[name] = kept
