"""Whole conversations on scripted engines, held against the schemas and section 9 of the protocol."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.protocol.order import OrderChecker
from tests.units.caller import Caller, Json, loud, quiet, said, scripted
from tests.units.conftest import UnitFactory
from tests.units.odd_engines import GatedLLM, GatedTTS, GatedVad, RememberingLLM
from units.engines.base import EngineError
from units.engines.scripted import ANSWER, HEARD, LONG_ANSWER, SECONDS_PER_CHARACTER, TONE_RATE
from units.messages import Message
from units.session import MOST_UNHEARD

SPOKEN = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]
WRITTEN = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
    "rate_limits.updated",
]
HEARD_TURN = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
]
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}


def once(types: list[str]) -> list[str]:
    """Without repetitions in a row."""
    return [type for index, type in enumerate(types) if index == 0 or types[index - 1] != type]


async def test_a_spoken_turn_is_answered_aloud(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.say(loud(1000), quiet(800))
    await caller.got("response.done")
    assert once(caller.types) == ["session.created", *HEARD_TURN, *SPOKEN]
    assert said(caller.responses[0]) == ANSWER
    assert caller.responses[0]["status"] == "completed"
    await caller.hang_up()


async def test_a_spoken_turn_keeps_its_item_id(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.say(loud(1000), quiet(800))
    await caller.got("conversation.item.done")
    ids = {event.get("item_id") or event["item"]["id"] for event in caller.events[1:6]}
    assert len(ids) == 1
    await caller.hang_up()


async def test_the_transcript_comes_before_the_answer_when_it_is_asked_for(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio={"input": {"transcription": {"model": "whisper-1"}}})
    caller.say(loud(1000), quiet(800))
    await caller.got("response.done")
    kind = "conversation.item.input_audio_transcription.completed"
    assert caller.of(kind)[0]["transcript"] == HEARD
    assert caller.types.index(kind) < caller.types.index("response.created")
    await caller.hang_up()


async def test_the_words_of_a_turn_come_once(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio={"input": {"transcription": {"model": "whisper-1"}}})
    caller.say(loud(1000), quiet(800))
    await caller.got("response.done")
    for kind in ("conversation.item.added", "conversation.item.done"):
        assert caller.of(kind)[0]["item"]["content"] == [{"type": "input_audio", "transcript": None}]
    caller.do("conversation.item.retrieve", item_id=caller.of("conversation.item.added")[0]["item"]["id"])
    assert caller.of("conversation.item.retrieved")[0]["item"]["content"][0]["transcript"] == HEARD
    await caller.hang_up()


async def test_live_transcripts_only_grow(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio={"input": {"transcription": {"model": "whisper-1"}}})
    caller.say(loud(3500))
    await caller.got("conversation.item.input_audio_transcription.delta")
    caller.say(quiet(800))
    whole = await caller.got("conversation.item.input_audio_transcription.completed")
    deltas = caller.of("conversation.item.input_audio_transcription.delta")
    assert whole["transcript"].startswith("".join(event["delta"] for event in deltas))
    await caller.hang_up()


async def test_sound_starts_between_the_deltas_and_stops_after_done(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.write("hi")
    await caller.got("response.done")
    await caller.unit.eventually(lambda: not caller.unit.outstanding - {caller.session.scope})
    assert len(caller.listen(10_000)) == pytest.approx(len(ANSWER) * 0.06 * 24_000, rel=0.05)
    assert caller.types[-2:] == ["output_audio_buffer.started", "output_audio_buffer.stopped"]
    await caller.hang_up()


class Verbose(Caller):
    max_message = 16_000_000


async def test_sound_that_comes_too_fast_to_be_heard_is_refused(new_unit: UnitFactory) -> None:
    vad = GatedVad()
    caller = Verbose(new_unit(scripted(vad=vad)))
    minute = base64.b64encode(bytes(2 * 24_000 * 60)).decode()
    for _ in range(11):
        caller.do("input_audio_buffer.append", audio=minute)
    assert set(caller.errors) == {("input_audio_buffer_overrun", "audio")}
    assert caller.session.unheard == MOST_UNHEARD
    vad.gate.set()
    await caller.hang_up()


async def test_an_answer_aside_does_not_wait_for_what_is_being_said(new_unit: UnitFactory) -> None:
    tts = GatedTTS(free=1)
    caller = Caller(new_unit(scripted(tts=tts)))
    caller.write("[[long]]")
    await caller.unit.eventually(lambda: caller.unit.output_queue.playing)
    words = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "[[echo:Aside.]]"}],
    }
    aside = {"conversation": "none", "output_modalities": ["text"], "input": [words], "metadata": {"n": "1"}}
    caller.do("response.create", response=aside)
    done = (await caller.got("response.done"))["response"]
    assert (said(done), done["metadata"], done["conversation_id"]) == ("Aside.", {"n": "1"}, None)
    assert caller.session.service.active is not None
    tts.gate.set()
    assert (await caller.got("response.done", 2))["response"]["conversation_id"]
    await caller.hang_up()


SEMANTIC = {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "medium"}}}
SOFT = 0.03
"""Level of speech after which the scripted detector thinks that more is to come."""


async def test_an_answer_waits_for_a_caller_who_has_not_finished(new_unit: UnitFactory) -> None:
    llm = RememberingLLM()
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.configure(audio=SEMANTIC)
    caller.say(loud(640, SOFT), quiet(3500))
    await caller.unit.eventually(lambda: llm.requests)  # on speculation, as ever
    assert caller.types[-1] == "input_audio_buffer.speech_started"
    caller.say(quiet(600))
    stopped = await caller.got("input_audio_buffer.speech_stopped")
    assert stopped["audio_end_ms"] == pytest.approx(640 + 4000, abs=64)
    await caller.got("response.done")
    assert len(llm.requests) == 1
    await caller.hang_up()


async def test_a_caller_who_has_finished_is_answered_sooner(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio=SEMANTIC)
    caller.say(loud(640), quiet(500))
    stopped = await caller.got("input_audio_buffer.speech_stopped")
    assert stopped["audio_end_ms"] == pytest.approx(640 + 300, abs=64)
    await caller.got("response.done")
    await caller.hang_up()


async def test_a_caller_who_goes_on_after_a_long_pause_has_said_one_thing(new_unit: UnitFactory) -> None:
    llm = RememberingLLM()
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.configure(audio=SEMANTIC)
    caller.say(loud(640, SOFT), quiet(2000))
    await caller.unit.eventually(lambda: llm.requests)
    caller.say(loud(640), quiet(500))
    await caller.got("response.done")
    assert len(caller.of("input_audio_buffer.speech_started")) == 1
    assert len(caller.of("input_audio_buffer.committed")) == 1
    assert len(caller.responses) == 1
    await caller.hang_up()


class BrokenTurn:
    def finished(self, samples: object) -> float:
        raise EngineError("out of memory")


async def test_a_model_of_the_end_of_turn_that_fails_costs_nobody_the_call(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(turn=BrokenTurn())))
    caller.configure(audio=SEMANTIC)
    for turn in (1, 2):
        caller.say(loud(640), quiet(800))
        await caller.got("response.done", turn)
    assert not caller.errors
    await caller.hang_up()


IDLE = {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}}}


async def test_a_silent_caller_is_spoken_to_once_the_answer_was_heard(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio=IDLE)
    caller.write("hi")
    await caller.got("response.done")
    await caller.unit.eventually(lambda: not caller.unit.outstanding - {caller.session.scope})
    caller.say(quiet(6000))  # while the answer is playing
    caller.listen(10_000)
    caller.say(quiet(4000))
    assert not caller.of("input_audio_buffer.timeout_triggered")
    caller.say(quiet(1100))
    await caller.got("response.done", 2)
    (timeout,) = caller.of("input_audio_buffer.timeout_triggered")
    assert timeout["audio_end_ms"] - timeout["audio_start_ms"] == pytest.approx(5000, abs=32)
    after = caller.types[caller.types.index(timeout["type"]) + 1 :]
    assert after[:4] == [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
    ]
    assert caller.of("conversation.item.done")[-2]["item"]["content"] == [
        {"type": "input_audio", "transcript": ""}
    ]
    await caller.hang_up()


async def test_speech_and_answers_put_the_idle_timeout_off(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio=IDLE)
    caller.write("hi", output_modalities=["text"])
    await caller.got("response.done")
    caller.say(quiet(4500), loud(500), quiet(1000))
    await caller.got("response.done", 2)
    caller.say(quiet(6000))  # its answer is still to be heard
    caller.do("input_audio_buffer.commit")
    await caller.got("input_audio_buffer.committed", 2)  # so all of it has been listened to
    assert not caller.of("input_audio_buffer.timeout_triggered")
    await caller.hang_up()


async def test_a_written_turn_is_answered_in_writing(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.write("hi", output_modalities=["text"])
    await caller.got("response.done")
    item = ["conversation.item.added", "conversation.item.done"]
    assert once(caller.types) == ["session.created", *item, *WRITTEN]
    assert said(caller.responses[0]) == ANSWER
    assert not caller.unit.response_playing
    await caller.hang_up()


async def test_a_written_turn_is_answered_aloud(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.write("hi")
    await caller.got("response.done")
    assert once(caller.types)[3:] == SPOKEN
    await caller.hang_up()


async def test_a_tool_is_called_and_its_result_answered(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(tools=[WEATHER], output_modalities=["text"])
    caller.write("what is the weather?")
    await caller.got("response.done")
    assert caller.types[-9:] == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]
    call = caller.responses[0]["output"][0]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    caller.do("conversation.item.create", item=output)
    caller.do("response.create")
    await caller.got("response.done", 2)
    assert said(caller.responses[1]) == "The tool said: sunny."
    await caller.hang_up()


async def test_barge_in_while_generating_cancels_clears_and_truncates(new_unit: UnitFactory) -> None:
    llm = GatedLLM("This is the first sentence of two. ")
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.write("hi")
    await caller.unit.eventually(lambda: caller.unit.output_queue.waiting > 24_000)
    caller.listen(400)
    caller.say(loud(200))
    await caller.got("conversation.item.truncated")
    after = caller.types[caller.types.index("input_audio_buffer.speech_started") :]
    assert after == [
        "input_audio_buffer.speech_started",
        *SPOKEN[5:],
        "output_audio_buffer.cleared",
        "conversation.item.truncated",
    ]
    assert caller.responses[0]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert caller.responses[0]["output"][0]["status"] == "incomplete"
    assert caller.of("conversation.item.truncated")[0]["audio_end_ms"] == 400
    await caller.hang_up()
    assert llm.closed == 1


async def test_barge_in_after_generation_clears_and_truncates(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.write("[[long]]")
    await caller.got("response.done")
    caller.listen(1000)
    caller.say(loud(200))
    await caller.got("conversation.item.truncated")
    assert caller.types[-3:] == [
        "input_audio_buffer.speech_started",
        "output_audio_buffer.cleared",
        "conversation.item.truncated",
    ]
    item_id = caller.of("conversation.item.truncated")[0]["item_id"]
    caller.do("conversation.item.retrieve", item_id=item_id)
    heard = caller.of("conversation.item.retrieved")[0]["item"]["content"][0]["transcript"]
    assert heard
    assert LONG_ANSWER.startswith(heard)
    assert len(heard) <= 1000 / 60
    await caller.hang_up()


async def test_barge_in_when_all_that_was_made_is_heard_clears_and_truncates(new_unit: UnitFactory) -> None:
    sentence = "This is the first sentence of two."
    samples = round(len(sentence) * SECONDS_PER_CHARACTER * TONE_RATE)
    caller = Caller(new_unit(scripted(llm=GatedLLM(f"{sentence} "))))
    caller.write("hi")
    await caller.unit.eventually(lambda: caller.unit.output_queue.waiting == samples)
    while caller.unit.output_queue.waiting:
        caller.listen(100)
    caller.say(loud(200))
    truncated = await caller.got("conversation.item.truncated")
    assert truncated["audio_end_ms"] > 2000
    assert caller.types[-2:] == ["output_audio_buffer.cleared", "conversation.item.truncated"]
    assert not caller.of("output_audio_buffer.stopped")
    await caller.hang_up()


async def test_barge_in_before_any_audio_truncates_to_nothing(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=GatedLLM("Well"))))
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.say(loud(200))
    truncated = await caller.got("conversation.item.truncated")
    assert truncated["audio_end_ms"] == 0
    assert not caller.of("output_audio_buffer.cleared")
    assert caller.responses[0]["status"] == "cancelled"
    await caller.hang_up()


async def test_speech_does_not_interrupt_when_the_client_says_so(new_unit: UnitFactory) -> None:
    llm = GatedLLM("One. ")
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.configure(audio={"input": {"turn_detection": {"type": "server_vad", "interrupt_response": False}}})
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.say(loud(1000), quiet(800))
    await caller.got("conversation.item.done", 2)
    assert not caller.responses
    llm.gate.set()
    await caller.got("response.done", 2)
    assert [response["status"] for response in caller.responses] == ["completed", "completed"]
    await caller.hang_up()


async def test_cancel_closes_what_is_open(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=GatedLLM("Well, "))))
    caller.write("hi")
    await caller.got("response.output_audio_transcript.delta")
    caller.do("response.cancel")
    assert caller.types[-7:] == SPOKEN[5:]
    assert caller.responses[0]["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    caller.do("response.cancel")
    assert caller.errors == [("response_cancel_not_active", None)]
    assert caller.of("error")[0]["error"]["message"].startswith("Cancellation failed")
    await caller.hang_up()


async def test_a_response_cancelled_before_its_first_word_has_no_output(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=GatedLLM())))
    caller.write("hi")
    caller.do("response.cancel", response_id=caller.of("response.created")[0]["response"]["id"])
    assert caller.responses[0]["output"] == []
    await caller.hang_up()


async def test_after_cancel_what_is_queued_plays_until_it_is_cleared(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=GatedLLM("This is the first sentence of two. "))))
    caller.write("hi")
    await caller.unit.eventually(lambda: caller.unit.output_queue.waiting > 24_000)
    caller.do("response.cancel")
    assert caller.listen(100)
    caller.do("output_audio_buffer.clear")
    assert not caller.listen(100)
    assert caller.types[-2:] == ["output_audio_buffer.cleared", "conversation.item.truncated"]
    await caller.hang_up()


async def test_a_cleared_response_stays_silent(new_unit: UnitFactory) -> None:
    llm = GatedLLM("This is the first sentence of two. ", "And this is the second one. ")
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.write("hi")
    await caller.unit.eventually(lambda: caller.unit.output_queue.waiting > 24_000)
    caller.listen(600)
    caller.do("output_audio_buffer.clear")
    llm.gate.set()
    await caller.got("response.done")
    assert not caller.unit.response_playing
    item_id = caller.responses[0]["output"][0]["id"]
    assert said(caller.responses[0]).endswith("second one. ")
    caller.do("conversation.item.retrieve", item_id=item_id)
    assert caller.of("conversation.item.retrieved")[0]["item"]["content"][0]["transcript"] == "This is"
    await caller.hang_up()


async def test_clearing_silence_is_answered_with_nothing(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.do("output_audio_buffer.clear")
    assert caller.types == ["session.created"]
    await caller.hang_up()


async def test_nothing_to_pronounce_neither_starts_nor_stops_the_sound(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.write("[[echo:...]]")
    await caller.got("response.done")
    await caller.unit.eventually(lambda: not caller.unit.response_playing)
    assert not [type for type in caller.types if type.startswith("output_audio_buffer")]
    await caller.hang_up()


def samples(ms: int, level: int = 9000) -> str:
    """Base64 of a square wave at 24 kHz."""
    n = np.arange(ms * 24)
    return base64.b64encode(np.where(n // 30 % 2, level, -level).astype("<i2").tobytes()).decode()


async def test_a_manual_turn_has_no_speech_events_and_no_answer_of_its_own(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio={"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}})
    caller.do("input_audio_buffer.clear")
    caller.do("input_audio_buffer.append", audio=samples(500))
    caller.do("input_audio_buffer.commit")
    await caller.got("conversation.item.input_audio_transcription.completed")
    assert caller.types[1:] == [
        "session.updated",
        "input_audio_buffer.cleared",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
    ]
    await caller.hang_up()


async def test_a_request_waits_for_the_words_of_a_manual_turn(new_unit: UnitFactory) -> None:
    llm = RememberingLLM()
    caller = Caller(new_unit(scripted(llm=llm)))
    caller.configure(audio={"input": {"turn_detection": None}})
    caller.say(loud(500))
    caller.do("input_audio_buffer.commit")
    caller.do("response.create")
    await caller.got("response.done")
    assert llm.requests[0].history == (Message("user", HEARD),)
    assert caller.types.index("conversation.item.done") < caller.types.index("response.created")
    await caller.hang_up()


async def test_a_commit_under_server_vad_is_not_answered_by_itself(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio={"input": {"transcription": {"model": "whisper-1"}}})
    caller.say(loud(500))
    await caller.got("input_audio_buffer.speech_started")
    caller.do("input_audio_buffer.commit")
    await caller.got("conversation.item.input_audio_transcription.completed")
    assert "response.created" not in caller.types
    assert "input_audio_buffer.speech_stopped" not in caller.types
    started, committed = (
        caller.of("input_audio_buffer.speech_started"),
        caller.of("input_audio_buffer.committed"),
    )
    assert started[0]["item_id"] == committed[0]["item_id"]
    await caller.hang_up()


async def test_a_commit_of_too_little_is_an_error(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit())
    caller.configure(audio={"input": {"turn_detection": None}})
    caller.say(loud(50))
    caller.do("input_audio_buffer.commit")
    await caller.got("error")
    assert caller.errors == [("input_audio_buffer_commit_empty", None)]
    assert caller.of("error")[0]["error"]["message"].endswith("buffer only has 50.00ms of audio.")
    await caller.hang_up()


ERRORS: list[tuple[Any, str | None, str | None]] = [
    ("{", "invalid_json", None),
    (b"{}", "invalid_event", None),
    ("[]", "invalid_event", None),
    ({"type": "nope"}, "invalid_value", "type"),
    ({}, "missing_required_parameter", "type"),
    ({"type": "session.update", "session": {"type": "realtime", "x": 1}}, "unknown_parameter", "session.x"),
    ({"type": "session.update"}, "missing_required_parameter", "session"),
    ({"type": "session.update", "session": {"type": "transcription"}}, "invalid_value", "session.type"),
    ({"type": "conversation.item.retrieve", "item_id": "x"}, "item_retrieve_invalid_item_id", None),
    ({"type": "conversation.item.delete", "item_id": "x"}, "item_delete_invalid_item_id", None),
    (
        {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 0},
        "item_truncate_invalid_item_id",
        None,
    ),
    ({"type": "conversation.item.retrieve"}, "missing_required_parameter", "item_id"),
    ({"type": "response.cancel"}, "response_cancel_not_active", None),
    ({"type": "response.cancel", "response_id": "resp_x"}, "response_cancel_not_active", None),
    ({"type": "input_audio_buffer.append", "audio": "%"}, "invalid_value", "audio"),
    ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
    ({"type": "conversation.item.create"}, "missing_required_parameter", "item"),
    (
        {
            "type": "conversation.item.create",
            "item": {"type": "function_call_output", "call_id": "c", "output": ""},
        },
        "invalid_value",
        "item.call_id",
    ),
]


@pytest.mark.parametrize(("message", "code", "param"), ERRORS)
@pytest.mark.parametrize("event_id", [None, "mine_1"])
async def test_a_wrong_event_gives_one_error(
    message: Any, code: str | None, param: str | None, event_id: str | None, new_unit: UnitFactory
) -> None:
    caller = Caller(new_unit())
    if isinstance(message, dict):
        message = json.dumps(message | ({"event_id": event_id} if event_id else {}))
    else:
        event_id = None
    caller.session.handle(message)
    assert caller.types == ["session.created", "error"]
    assert caller.errors == [(code, param)]
    assert caller.of("error")[0]["error"]["event_id"] == event_id
    await caller.hang_up()


async def test_a_second_response_at_once_is_refused(new_unit: UnitFactory) -> None:
    caller = Caller(new_unit(scripted(llm=GatedLLM("Well, "))))
    caller.write("hi")
    caller.do("response.create", event_id="mine")
    assert caller.errors == [("conversation_already_has_active_response", None)]
    assert caller.of("error")[0]["error"]["event_id"] == "mine"
    await caller.hang_up()


# --- the checker itself --------------------------------------------------------------------------


async def conversation(new_unit: UnitFactory) -> list[Json]:
    caller = Caller(new_unit())
    caller.configure(tools=[WEATHER])
    caller.say(loud(1000), quiet(800))
    await caller.got("response.done")
    caller.write("what is the weather?")
    await caller.got("response.done", 2)
    await caller.hang_up()
    return caller.events


def complaints(events: list[Json]) -> bool:
    checker = OrderChecker()
    try:
        for event in events:
            checker.feed(event)
        checker.finish()
    except AssertionError:
        return True
    return False


_INDEPENDENT = {"session.updated", "rate_limits.updated"}
_EITHER_WAY = {"response.output_audio.done", "response.output_audio_transcript.delta"}


async def test_the_checker_notices_every_event_that_is_missing_or_doubled(new_unit: UnitFactory) -> None:
    events = await conversation(new_unit)
    assert not complaints(events)
    loose = _INDEPENDENT | {"session.created", "input_audio_buffer.speech_stopped"}
    for index, event in enumerate(events):
        again = event | {"event_id": "event_again"}
        if event["type"] not in _INDEPENDENT:
            assert complaints([*events[: index + 1], again, *events[index + 1 :]]), event["type"]
        if event["type"] not in loose and event["type"] != "input_audio_buffer.committed":
            assert complaints([*events[:index], *events[index + 1 :]]), event["type"]


async def test_the_checker_notices_events_of_a_response_that_change_places(new_unit: UnitFactory) -> None:
    events = await conversation(new_unit)
    for index, (one, other) in enumerate(pairwise(events)):
        kinds = {one["type"], other["type"]}
        fixed = len(kinds) == 2 and kinds != _EITHER_WAY and not kinds & _INDEPENDENT
        if fixed and "response" in one["type"] and one["type"] != "response.done":
            assert complaints([*events[:index], other, one, *events[index + 2 :]]), kinds
