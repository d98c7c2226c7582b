"""The pure service: events and notices in, effects out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.protocol.tap import Problems
from tests.units.caller import Json, said
from units.messages import (
    Audio,
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
    Say,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    TextDelta,
    TextFinished,
    TranscriptFailed,
    TranscriptFinal,
    TranscriptGuess,
    Voice,
)
from units.playout import Heard
from units.realtime.effects import Close, FlushPlayout, Hear, Play, Recognise, SendEvent, Submit
from units.realtime.service import MOST_DEFERRED, MOST_RECORDINGS, RealtimeService, ServiceConfig
from units.scope import CancelScope

HI = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


class Driver:
    """Hands things to a service and keeps what it wants done."""

    def __init__(self, *, settings: Iterable[Json] = (), **config: Any) -> None:
        self.scope = CancelScope("session")
        operator = ServiceConfig(**({"apology": "Sorry."} | config))
        self.service = RealtimeService(self.scope, operator, now=1_000.0)
        self.service.configure(settings)
        self.effects: list[Any] = []
        self.heard: list[Heard] = []  # what the next flush answers
        self.problems = Problems()
        self.perform(self.service.open())

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            self.effects.append(effect)
            if isinstance(effect, SendEvent):
                self.problems.look_at(effect.event)
            elif isinstance(effect, FlushPlayout):
                self.perform(self.service.flushed(self.heard))
        assert self.problems == []

    def do(self, type: str, **members: Any) -> None:
        self.perform(self.service.handle(json.dumps({"type": type, **members})))

    def configure(self, **session: Any) -> None:
        self.do("session.update", session={"type": "realtime", **session})

    def ears(self, *notices: object) -> None:
        for notice in notices:
            self.perform(self.service.receive(Envelope(self.scope, notice)))

    def mouth(self, *bodies: object, scope: CancelScope | None = None) -> None:
        scope = scope or self.submitted[-1].scope
        for body in bodies:
            self.perform(self.service.receive(Envelope(scope, body)))

    def of(self, kind: type) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def submitted(self) -> list[Submit]:
        return self.of(Submit)

    @property
    def events(self) -> list[Json]:
        return [effect.event for effect in self.of(SendEvent)]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def done(self) -> Json:
        """The response that was done last."""
        done: Json = next(e["response"] for e in reversed(self.events) if e["type"] == "response.done")
        return done

    @property
    def prompts(self) -> list[list[str]]:
        """What each request to the model has for history, as text."""
        works = [effect.work for effect in self.submitted if isinstance(effect.work, Generate)]
        return [[entry.text for entry in work.history if isinstance(entry, Message)] for work in works]


@pytest.fixture
def driver() -> Driver:
    return Driver()


def audio(text: str, ms: int = 10) -> Audio:
    return Audio(np.ones(ms * 24, np.int16), 24_000, text)


PAUSED = (SpeechStarted(1, 0), SpeechPaused(1, 1, 500))
WORDS = TranscriptFinal(1, 1, "hello", 1.0)
ENDED = SpeechEnded(1, 900)
ANSWER = (TextDelta("Yes."), TextFinished(Finish()), audio("Yes."), End())


# --- speculation -------------------------------------------------------------------------------------


def test_words_at_a_soft_end_are_answered_on_speculation(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS)
    assert driver.prompts == [["hello"]]
    assert "response.created" not in driver.types


def test_an_answer_on_speculation_touches_nothing(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS)
    driver.mouth(*ANSWER)
    assert driver.service.conversation.history() == ()
    assert not driver.of(Play)
    assert driver.types == ["session.created", "input_audio_buffer.speech_started"]


def test_the_end_of_the_turn_releases_it(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS)
    driver.mouth(*ANSWER)
    driver.ears(ENDED)
    assert said(driver.done) == "Yes."
    assert len(driver.submitted) == 1


def test_going_on_cancels_it(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS, SpeechResumed(1))
    assert driver.submitted[0].scope.cancelled
    driver.mouth(*ANSWER)
    driver.ears(SpeechPaused(1, 2, 900), TranscriptFinal(1, 2, "hello there", 2.0), SpeechEnded(1, 1400))
    assert driver.prompts == [["hello"], ["hello there"]]
    assert driver.types.count("response.created") == 1


@pytest.mark.parametrize(
    "event",
    [
        {"type": "conversation.item.create", "item": HI},
        {"type": "conversation.item.delete", "item_id": "old"},
        {"type": "session.update", "session": {"type": "realtime", "instructions": "Be brief."}},
    ],
)
def test_what_it_did_not_know_of_makes_it_stale(driver: Driver, event: Json) -> None:
    driver.do("conversation.item.create", item=HI | {"id": "old"})
    driver.ears(*PAUSED, WORDS)
    driver.perform(driver.service.handle(json.dumps(event)))
    assert driver.submitted[0].scope.cancelled
    driver.ears(ENDED)
    assert len(driver.submitted) == 2
    assert driver.prompts[1][-1] == "hello"


def test_nothing_is_speculated_while_an_answer_is_made(driver: Driver) -> None:
    driver.configure(audio={"input": {"turn_detection": {"type": "server_vad", "interrupt_response": False}}})
    driver.do("response.create")
    driver.ears(*PAUSED, WORDS)
    assert len(driver.submitted) == 1


# --- turns -------------------------------------------------------------------------------------------


def test_a_turn_in_which_nothing_was_said_is_not_answered(driver: Driver) -> None:
    driver.configure(audio={"input": {"transcription": {"model": "any"}}})
    driver.ears(*PAUSED, ENDED, TranscriptFinal(1, 1, "", 1.0))
    assert driver.types[-1] == "conversation.item.input_audio_transcription.completed"
    assert not driver.submitted


def test_a_turn_is_not_answered_when_the_client_answers_itself(driver: Driver) -> None:
    driver.configure(audio={"input": {"turn_detection": {"type": "server_vad", "create_response": False}}})
    driver.ears(*PAUSED, WORDS, ENDED)
    assert driver.types[-1] == "conversation.item.done"
    assert not driver.submitted
    driver.do("response.create")
    assert driver.prompts == [["hello"]]


def test_words_that_come_after_the_end_are_answered_then(driver: Driver) -> None:
    driver.ears(*PAUSED, ENDED)
    assert not driver.submitted
    driver.ears(WORDS)
    assert driver.prompts == [["hello"]]


def test_a_turn_that_is_not_understood_is_apologised_for(driver: Driver) -> None:
    driver.ears(*PAUSED, ENDED, TranscriptFailed(1, 1, "no"))
    assert driver.types[-1] == "response.created"
    assert isinstance(driver.submitted[0].work, Say)
    driver.mouth(TextDelta("Sorry."), TextFinished(Finish()), audio("Sorry."), End())
    assert driver.done["status"] == "failed"
    assert driver.done["status_details"]["error"]["message"] == "no"


@pytest.mark.parametrize(
    "drop",
    [
        {"type": "input_audio_buffer.clear"},
        {
            "type": "session.update",
            "session": {"type": "realtime", "audio": {"input": {"turn_detection": None}}},
        },
    ],
)
@pytest.mark.parametrize("late", [PAUSED[1], SpeechResumed(1), ENDED])
def test_what_the_ears_said_about_a_turn_before_they_heard_it_was_dropped_is_ignored(
    driver: Driver, drop: Json, late: object
) -> None:
    driver.ears(*PAUSED)
    driver.perform(driver.service.handle(json.dumps(drop)))
    before = len(driver.effects)
    driver.ears(late, WORDS)
    assert len(driver.effects) == before


def test_a_turn_that_began_while_a_clear_was_on_its_way_does_not_hold_up_the_next(driver: Driver) -> None:
    driver.do("input_audio_buffer.clear")
    driver.ears(SpeechStarted(1, 0))  # the ears forget it now
    driver.ears(SpeechStarted(2, 900), SpeechPaused(2, 1, 1200), SpeechEnded(2, 1500))
    driver.ears(TranscriptFinal(2, 1, "hello", 1.0))
    assert driver.prompts == [["hello"]]


def test_a_turn_that_began_while_turn_detection_was_being_switched_off_is_none(driver: Driver) -> None:
    settings = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    driver.do("session.update", session=settings)
    driver.do("input_audio_buffer.commit")
    driver.ears(SpeechStarted(1, 0), SpeechPaused(1, 1, 300))  # they have not read of it yet
    sent = next(effect.body for effect in driver.of(Hear) if isinstance(effect.body, Commit))
    driver.ears(Committed(sent.item_id, 2, 1, 300))
    assert driver.types == [
        "session.created",
        "session.updated",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]


def committed_ids(driver: Driver) -> list[str]:
    return [event["item_id"] for event in driver.events if event["type"] == "input_audio_buffer.committed"]


def test_a_commit_that_crosses_the_end_of_its_turn_gets_an_item_of_its_own(driver: Driver) -> None:
    driver.ears(*PAUSED)
    driver.do("input_audio_buffer.commit")
    sent = next(effect.body for effect in driver.of(Hear) if isinstance(effect.body, Commit))
    driver.ears(ENDED, Committed(sent.item_id, 2, 1, 300))
    started = next(event["item_id"] for event in driver.events if "item_id" in event)
    assert committed_ids(driver) == [started, sent.item_id]
    assert started != sent.item_id


def test_a_commit_that_crosses_the_start_of_a_turn_takes_over_its_item(driver: Driver) -> None:
    driver.do("input_audio_buffer.commit")
    sent = next(effect.body for effect in driver.of(Hear) if isinstance(effect.body, Commit))
    driver.ears(SpeechStarted(1, 0), Committed(sent.item_id, 1, 1, 300))
    assert committed_ids(driver) == [event["item_id"] for event in driver.events if "audio_start_ms" in event]


def test_words_find_their_item_even_when_the_client_made_another_with_its_id(driver: Driver) -> None:
    driver.ears(*PAUSED, ENDED)
    item_id = committed_ids(driver)[0]
    driver.do("conversation.item.delete", item_id=item_id)
    driver.do("conversation.item.create", item=HI | {"id": item_id, "role": "system", "content": []})
    driver.ears(WORDS)
    found = driver.service.conversation.find(item_id)
    assert found is not None
    assert found["content"] == []


def test_a_request_that_waited_for_words_tells_its_error_with_its_id(driver: Driver) -> None:
    driver.configure(audio={"input": {"turn_detection": None}})
    driver.do("input_audio_buffer.commit")
    driver.do("response.create", event_id="one")
    driver.do("response.create", event_id="two")
    driver.ears(Committed("item_x", 1, 1, 300), TranscriptFinal(1, 1, "hello", 1.0))
    assert driver.types[-1] == "error"
    assert driver.events[-1]["error"]["event_id"] == "two"
    assert driver.prompts == [["hello"]]


# --- responses ---------------------------------------------------------------------------------------


def test_only_what_was_heard_is_remembered_after_an_interruption(driver: Driver) -> None:
    driver.do("response.create")
    driver.mouth(TextDelta("One two. "), audio("One two. "), TextDelta("Three."), audio("Three."))
    response_id = next(e["response"]["id"] for e in driver.events if e["type"] == "response.created")
    driver.heard = [Heard(response_id, 7, "One")]
    driver.ears(*PAUSED)
    driver.heard = []
    driver.ears(WORDS)
    assert driver.prompts[-1] == ["One", "hello"]


def test_words_that_were_never_heard_are_forgotten(driver: Driver) -> None:
    driver.do("response.create")
    driver.mouth(TextDelta("One two. "))
    driver.ears(*PAUSED, WORDS)
    assert driver.prompts[-1] == ["hello"]


def test_an_out_of_band_response_stays_out_of_the_conversation(driver: Driver) -> None:
    driver.do("conversation.item.create", item=HI | {"id": "a"})
    driver.do("response.create")
    reference = [{"type": "item_reference", "id": "a"}]
    driver.do(
        "response.create",
        response={"conversation": "none", "input": reference, "output_modalities": ["text"]},
    )
    assert driver.prompts == [["hi"], ["hi"]]
    driver.mouth(TextDelta("Yes."), TextFinished(Finish()), End())
    done = driver.done
    assert (done["conversation_id"], done["status"], said(done)) == (None, "completed", "Yes.")
    assert driver.service.conversation.last_id == "a"
    assert driver.service.active is not None


def test_a_reference_to_an_unknown_item_is_refused(driver: Driver) -> None:
    driver.do("response.create", response={"input": [{"type": "item_reference", "id": "x"}]})
    assert driver.events[-1]["error"]["param"] == "response.input[0].id"
    assert not driver.submitted


def test_a_failing_voice_fails_the_response_at_once(driver: Driver) -> None:
    driver.do("response.create")
    driver.mouth(TextDelta("Yes."), Failed("tts", "the voice is gone"))
    assert driver.done["status"] == "failed"
    assert driver.submitted[0].scope.cancelled
    assert len(driver.submitted) == 1


def test_an_apology_that_fails_too_ends_the_response(driver: Driver) -> None:
    driver.do("response.create")
    driver.mouth(Failed("llm", "no"), End())
    assert isinstance(driver.submitted[1].work, Say)
    driver.mouth(Failed("output", "no again"), End())
    assert driver.done["status"] == "failed"
    assert driver.done["status_details"]["error"]["message"] == "no"


def test_a_written_answer_that_fails_is_not_apologised_for(driver: Driver) -> None:
    driver.do("response.create", response={"output_modalities": ["text"]})
    driver.mouth(Failed("llm", "no"), End())
    assert driver.done["status"] == "failed"
    assert len(driver.submitted) == 1


@pytest.mark.parametrize(
    ("reason", "detail"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_an_answer_that_was_cut_off_is_incomplete(driver: Driver, reason: Any, detail: str) -> None:
    driver.do("response.create")
    driver.mouth(TextDelta("Yes"), TextFinished(Finish(reason, 7, 3, 2)), audio("Yes"), End())
    response = driver.done
    assert response["status_details"] == {"type": "incomplete", "reason": detail}
    usage = response["usage"]
    assert (usage["total_tokens"], usage["input_tokens"], usage["output_tokens"]) == (10, 7, 3)
    assert usage["input_token_details"]["cached_tokens"] == 2


def test_metadata_comes_back(driver: Driver) -> None:
    driver.do("response.create", response={"metadata": {"client_event_id": "x"}})
    assert driver.events[-1]["response"]["metadata"] == {"client_event_id": "x"}


def test_truncating_an_answer_that_has_no_sound_yet_is_acknowledged(driver: Driver) -> None:
    driver.do("response.create")
    driver.mouth(TextDelta("Yes."))
    item_id = next(e["item"]["id"] for e in driver.events if e["type"] == "response.output_item.added")
    driver.do("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)
    assert driver.types[-1] == "conversation.item.truncated"


def test_what_users_wrote_cannot_be_truncated(driver: Driver) -> None:
    driver.do("conversation.item.create", item=HI | {"id": "a"})
    driver.do("conversation.item.truncate", item_id="a", content_index=0, audio_end_ms=0)
    error = driver.events[-1]["error"]
    assert (error["code"], error["message"]) == (None, "Only model output audio messages can be truncated")


def test_a_session_ends_at_its_time(driver: Driver) -> None:
    assert driver.service.deadline(1_000.0) == 4_600.0
    assert driver.service.handle_timer(4_599.0, 1_000.0) == []
    driver.perform(driver.service.handle_timer(4_600.0, 1_000.0))
    assert driver.events[-1]["error"]["code"] == "session_expired"
    assert driver.of(Close) == [Close("session expired")]


def test_a_session_in_which_nothing_happens_ends_early() -> None:
    driver = Driver(idle_timeout=60)
    assert driver.service.deadline(1_000.0) == 1_060.0
    assert driver.service.handle_timer(1_060.0, 1_030.0) == []
    driver.perform(driver.service.handle_timer(1_090.0, 1_030.0))
    error = driver.events[-1]["error"]
    assert (error["code"], error["message"]) == (
        "session_expired",
        "Nothing has happened in your session for 60 seconds.",
    )
    assert driver.of(Close) == [Close("session expired")]


def test_a_session_is_busy_while_somebody_speaks() -> None:
    driver = Driver()
    assert not driver.service.busy
    driver.ears(SpeechStarted(1, 0))
    assert driver.service.busy
    driver.ears(SpeechPaused(1, 1, 900), SpeechEnded(1, 900), TranscriptFinal(1, 1, "", 1.0))
    assert not driver.service.busy
    driver.do("response.create")
    assert driver.service.busy


def test_locked_settings_stay_what_the_operator_chose() -> None:
    begun = {"type": "realtime", "instructions": "Be evil.", "tools": [{"type": "what"}]}
    driver = Driver(settings=[begun], instructions="Be kind.", locked=("instructions", "tools"))
    mcp = {"type": "mcp", "server_label": "a", "server_url": "http://10.0.0.1/"}
    driver.configure(instructions="Be evil.", tools=[mcp], max_output_tokens=9)
    session = driver.events[-1]["session"]
    assert session["tools"] == []
    assert session["max_output_tokens"] == 9
    tool = {"type": "function", "name": "f"}
    driver.do("response.create", response={"instructions": "Be evil.", "tools": [tool]})
    request = driver.submitted[-1].work
    assert (request.instructions, request.tools) == ("Be kind.", ())


def test_locked_instructions_are_not_shown_and_yet_hold() -> None:
    driver = Driver(instructions="The word is swordfish.", locked=("instructions",))
    driver.configure(max_output_tokens=9)
    driver.do("response.create")
    assert driver.submitted[-1].work.instructions == "The word is swordfish."
    assert "swordfish" not in str(driver.events)
    assert [event["session"]["instructions"] for event in driver.events if "session" in event] == ["", ""]


def test_locked_instructions_cannot_be_given_as_a_system_message() -> None:
    driver = Driver(locked=("instructions",))
    system = HI | {"role": "system"}
    driver.do("conversation.item.create", item=system)
    assert driver.events[-1]["error"]["param"] == "item.role"
    driver.do("response.create", response={"conversation": "none", "input": [HI, system]})
    assert driver.events[-1]["error"]["param"] == "response.input[1].role"
    driver.do("conversation.item.create", item=HI)
    assert driver.types[-1] == "conversation.item.done"


def test_failing_ears_end_the_session(driver: Driver) -> None:
    driver.ears(Failed("vad", "the detector is gone"))
    assert driver.events[-1]["error"]["type"] == "server_error"
    assert driver.of(Close) == [Close("the detector is gone")]


def test_a_cancelled_session_hears_nothing(driver: Driver) -> None:
    driver.scope.cancel()
    before = len(driver.effects)
    driver.ears(*PAUSED)
    assert len(driver.effects) == before


def preparing(driver: Driver) -> list[Submit]:
    return [each for each in driver.effects if isinstance(each, Submit) and isinstance(each.work, Prepare)]


def reading_ahead() -> Driver:
    return Driver(prepares=True)


def test_the_model_reads_what_is_certain_while_the_caller_still_speaks() -> None:
    driver = reading_ahead()
    driver.ears(SpeechStarted(1, 0), TranscriptGuess(1, "what is the wea"))
    (work,) = preparing(driver)
    assert isinstance(work.work, Prepare)
    assert work.work.request.history == (Message("user", "what is the"),)


def test_reading_ahead_stops_when_more_is_known_or_an_answer_is_wanted() -> None:
    driver = reading_ahead()
    driver.ears(SpeechStarted(1, 0), TranscriptGuess(1, "what is"), TranscriptGuess(1, "what is the weather"))
    first, second = preparing(driver)
    assert first.scope.cancelled
    assert not second.scope.cancelled
    driver.ears(SpeechPaused(1, 1, 900), TranscriptFinal(1, 1, "what is the weather", 1.0))
    assert second.scope.cancelled


def test_nothing_is_read_ahead_for_a_model_that_cannot_or_an_answer_that_will_not_be() -> None:
    driver = Driver()
    driver.ears(SpeechStarted(1, 0), TranscriptGuess(1, "what is the"))
    assert preparing(driver) == []
    driver = reading_ahead()
    driver.configure(audio={"input": {"turn_detection": {"type": "server_vad", "create_response": False}}})
    driver.ears(SpeechStarted(1, 0), TranscriptGuess(1, "what is the"))
    assert preparing(driver) == []


def test_an_answer_without_end_is_cut_off() -> None:
    driver = Driver()
    driver.do("conversation.item.create", item=HI)
    driver.do("response.create")
    ten_minutes = Audio(np.zeros(24_000 * 601, np.int16), 24_000, "On and on ")
    driver.mouth(TextDelta("On and on and on"), ten_minutes)
    done = [
        e.event for e in driver.effects if isinstance(e, SendEvent) and e.event["type"] == "response.done"
    ]
    assert [each["response"]["status"] for each in done] == ["incomplete"]
    assert driver.service.active is None


def test_the_betas_flat_session_is_taken_unless_the_protocol_is_strict() -> None:
    flat = {"voice": "verse", "input_audio_transcription": {"model": "whisper-1"}}
    lenient, strict = Driver(), Driver(strict=True)
    for driver in (lenient, strict):
        driver.do("session.update", session=flat)
    audio = lenient.events[-1]["session"]["audio"]
    assert (audio["output"]["voice"], audio["input"]["transcription"]["model"]) == ("verse", "whisper-1")
    assert strict.events[-1]["error"]["code"] == "unknown_parameter"
    strict.do("session.update", session={})
    assert strict.events[-1]["error"]["param"] == "session.type"


def test_a_strict_session_keeps_the_voice_that_was_heard() -> None:
    def voice(name: str) -> Json:
        return {"type": "realtime", "audio": {"output": {"voice": name}}}

    for strict, last in ((True, "error"), (False, "session.updated")):
        driver = Driver(strict=strict)
        driver.do("session.update", session=voice("marin"))
        driver.do("conversation.item.create", item=HI)
        driver.do("response.create")
        driver.mouth(TextDelta("Hello."), Audio(np.ones(480, np.int16), 24_000, "Hello."))
        driver.mouth(TextFinished(Finish()), End())
        driver.do("session.update", session=voice("marin"))
        assert driver.events[-1]["type"] == "session.updated"
        driver.do("session.update", session=voice("ash"))
        assert driver.events[-1]["type"] == last


def test_a_conversation_takes_no_more_than_fits(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("units.realtime.conversation.MOST_CHARACTERS", 5)
    for _ in range(4):
        driver.do("conversation.item.create", item=HI)
    kinds = [event["type"] for event in driver.events]
    assert kinds.count("conversation.item.added") == 3
    assert driver.events[-1]["error"]["code"] == "conversation_full"
    driver.do("conversation.item.delete", item_id=driver.service.conversation.last_id)
    driver.do("conversation.item.create", item=HI)
    assert driver.events[-1]["type"] == "conversation.item.done"


def test_null_in_a_request_for_an_answer_is_as_if_it_were_not_there(driver: Driver) -> None:
    driver.configure(instructions="Be brief.")
    driver.do("response.create", response={"instructions": None, "tools": None, "metadata": None})
    assert driver.submitted[-1].work.instructions == "Be brief."


# --- conversations that are too long -----------------------------------------------------------------


def write(driver: Driver, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    driver.do("conversation.item.create", item={"type": "message", "role": "user", "content": content})


def talk(driver: Driver, *turns: str) -> None:
    """Text turns of the user, each answered with "Yes."."""
    for text in turns:
        write(driver, text)
        driver.do("response.create")
        driver.mouth(*ANSWER)


TWENTY = tuple(f"Turn {chr(97 + n)} {'x' * 83}" for n in range(20))
"""Each is estimated at 34 tokens, and its answer at 6."""


def test_the_oldest_turns_of_a_long_conversation_are_not_shown_to_the_model() -> None:
    driver = Driver(context_tokens=400)
    talk(driver, *TWENTY)
    assert [prompt[-1] for prompt in driver.prompts] == list(TWENTY)
    assert max(map(len, driver.prompts)) == 2 * 9 + 1
    assert all(prompt[0] in TWENTY for prompt in driver.prompts)


def test_what_the_model_is_shown_begins_at_the_same_turn_for_several_turns() -> None:
    beginnings = {}
    for ratio in (0.3, 0.8, 1.0):
        driver = Driver(context_tokens=400)
        driver.configure(truncation={"type": "retention_ratio", "retention_ratio": ratio})
        talk(driver, *TWENTY)
        beginnings[ratio] = len({prompt[0] for prompt in driver.prompts})
    assert beginnings == {0.3: 3, 0.8: 5, 1.0: 11}


def test_the_client_may_bound_the_conversation_more_tightly() -> None:
    driver = Driver(context_tokens=400)
    limits = {"post_instructions": 120}
    driver.configure(truncation={"type": "retention_ratio", "retention_ratio": 1.0, "token_limits": limits})
    talk(driver, *TWENTY)
    assert max(map(len, driver.prompts)) == 2 * 2 + 1


def test_instructions_and_tools_take_of_the_room() -> None:
    driver = Driver(context_tokens=400)
    tool = {"type": "function", "name": "f", "description": "x" * 300}
    driver.configure(instructions="x" * 540, tools=[tool])
    talk(driver, *TWENTY)
    assert max(map(len, driver.prompts)) == 2 * 1 + 1


def test_the_last_turn_is_shown_however_long_it_is() -> None:
    driver = Driver(context_tokens=10)
    talk(driver, "a", "x" * 1000)
    assert driver.prompts == [["a"], ["x" * 1000]]


def test_a_call_leaves_together_with_its_result() -> None:
    driver = Driver(context_tokens=60)
    write(driver, "hi")
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    driver.do("conversation.item.create", item=call)
    output = {"type": "function_call_output", "call_id": "c1", "output": "x" * 150}
    driver.do("conversation.item.create", item=output)
    talk(driver, "y" * 30)
    assert driver.submitted[-1].work.history == (Message("user", "y" * 30),)


def test_items_that_the_model_has_forgotten_are_still_in_the_conversation() -> None:
    driver = Driver(context_tokens=100)
    talk(driver, *TWENTY)
    first = next(e["item"]["id"] for e in driver.events if e["type"] == "conversation.item.added")
    driver.do("conversation.item.retrieve", item_id=first)
    assert driver.events[-1]["type"] == "conversation.item.retrieved"


def test_a_request_that_needs_a_forbidden_truncation_is_refused() -> None:
    driver = Driver(context_tokens=100)
    driver.configure(truncation="disabled")
    talk(driver, "x" * 200)
    write(driver, "x" * 200)
    driver.do("response.create", event_id="mine")
    assert driver.events[-1]["error"]["code"] == "context_length_exceeded"
    assert driver.events[-1]["error"]["event_id"] == "mine"
    driver.configure(truncation="auto")
    driver.do("response.create")
    assert driver.prompts[-1] == ["x" * 200]


def test_a_spoken_turn_that_needs_a_forbidden_truncation_fails_aloud() -> None:
    driver = Driver(context_tokens=100)
    driver.configure(truncation="disabled")
    write(driver, "x" * 400)
    driver.ears(*PAUSED, WORDS, ENDED)
    assert driver.submitted[-1].work == Say("Sorry.", Voice("default"))
    driver.mouth(TextDelta("Sorry."), audio("Sorry."), End())
    response = driver.done
    assert response["status"] == "failed"
    assert response["status_details"]["error"]["code"] == "context_length_exceeded"


# --- sound in items ------------------------------------------------------------------------------------


def record(driver: Driver, **item: Any) -> None:
    """An item with 0.1 s of sound, without its words."""
    sound = base64.b64encode(np.ones(2400, "<i2").tobytes()).decode()
    part = {"type": "input_audio", "audio": sound}
    driver.do("conversation.item.create", item={"type": "message", "role": "user", "content": [part], **item})


def test_sound_in_an_item_is_recognised_before_it_is_answered(driver: Driver) -> None:
    driver.configure(audio={"input": {"transcription": {"model": "any", "language": "de"}}})
    record(driver, id="mine")
    driver.do("response.create")
    (work,) = driver.of(Recognise)
    assert (len(work.samples), work.rate, work.language) == (2400, 24_000, "de")
    assert not driver.submitted
    driver.ears(RecordingHeard(work.number, "guten Tag", 0.1))
    assert driver.prompts == [["guten Tag"]]
    kinds = driver.types
    assert kinds.index("conversation.item.input_audio_transcription.completed") < kinds.index(
        "response.created"
    )
    driver.do("conversation.item.retrieve", item_id="mine")
    assert driver.events[-1]["item"]["content"] == [{"type": "input_audio", "transcript": "guten Tag"}]


def test_sound_in_an_item_that_cannot_be_recognised_is_answered_without_it(driver: Driver) -> None:
    driver.configure(audio={"input": {"transcription": {"model": "any"}}})
    write(driver, "Listen:")
    record(driver)
    driver.do("response.create")
    driver.ears(RecordingHeard(1, "", 0.1, "no"))
    assert "conversation.item.input_audio_transcription.failed" in driver.types
    assert driver.prompts == [["Listen:"]]


def test_words_of_an_item_that_was_deleted_are_not_told(driver: Driver) -> None:
    driver.configure(audio={"input": {"transcription": {"model": "any"}}})
    record(driver, id="mine")
    driver.do("conversation.item.delete", item_id="mine")
    driver.do("conversation.item.create", item=HI | {"id": "mine"})
    driver.ears(RecordingHeard(1, "hello", 0.1))
    assert "conversation.item.input_audio_transcription.completed" not in driver.types
    assert driver.service.conversation.history() == (Message("user", "hi"),)


def test_more_sound_than_can_be_recognised_is_refused(driver: Driver) -> None:
    for _ in range(MOST_RECORDINGS + 1):
        record(driver)
    assert driver.events[-1]["error"]["code"] == "input_audio_overrun"
    assert len(driver.of(Recognise)) == MOST_RECORDINGS
    driver.ears(RecordingHeard(1, "hello", 0.1))
    record(driver)
    assert driver.types[-1] == "conversation.item.done"


def test_sound_without_words_is_refused_where_nobody_could_wait_for_them(driver: Driver) -> None:
    part = {"type": "input_audio", "audio": "AAA="}
    driver.do("response.create", response={"input": [{"type": "message", "role": "user", "content": [part]}]})
    error = driver.events[-1]["error"]
    assert (error["code"], error["param"]) == ("unsupported_content_type", "response.input[0]")


def test_sound_that_is_not_base64_is_refused_and_named(driver: Driver) -> None:
    part = {"type": "input_audio", "audio": "?"}
    driver.do("conversation.item.create", item={"type": "message", "role": "user", "content": [part]})
    error = driver.events[-1]["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "item.content[0].audio")


# --- ids, and who is told -----------------------------------------------------------------------------


def test_an_item_cannot_take_the_id_of_what_is_being_said(driver: Driver) -> None:
    driver.ears(SpeechStarted(1, 0))
    driver.do("conversation.item.create", item=HI | {"id": driver.events[-1]["item_id"]})
    assert driver.events[-1]["error"]["code"] == "item_create_duplicate_item_id"
    driver.ears(SpeechPaused(1, 1, 500), ENDED)
    assert driver.types[-1] == "conversation.item.done"


def test_a_commit_of_nothing_names_the_event_that_asked_for_it(driver: Driver) -> None:
    driver.do("input_audio_buffer.commit", event_id="mine")
    (commit,) = [effect.body for effect in driver.of(Hear) if isinstance(effect.body, Commit)]
    driver.ears(Committed(commit.item_id, 1, 1, 0))
    assert driver.events[-1]["error"]["event_id"] == "mine"


def test_requests_that_wait_are_bounded(driver: Driver) -> None:
    record(driver)
    for _ in range(MOST_DEFERRED + 1):
        driver.do("response.create")
    assert driver.events[-1]["error"]["code"] == "too_many_responses"


def test_only_the_first_part_of_an_answer_can_be_truncated(driver: Driver) -> None:
    write(driver, "hi")
    driver.do("response.create")
    driver.mouth(*ANSWER)
    item_id = driver.done["output"][0]["id"]
    driver.do("conversation.item.truncate", item_id=item_id, content_index=7, audio_end_ms=0)
    assert (driver.events[-1]["error"]["code"], driver.events[-1]["error"]["param"]) == (
        "invalid_value",
        "content_index",
    )


# --- when the server stops -----------------------------------------------------------------------------


def test_a_server_that_stops_says_so(driver: Driver) -> None:
    driver.perform(driver.service.stop())
    error = driver.events[-1]["error"]
    assert (error["type"], error["code"], error["event_id"]) == ("server_error", "server_shutting_down", None)
    assert not driver.of(Close)


def test_a_session_is_busy_from_the_first_word_to_the_last_sound_of_the_answer(driver: Driver) -> None:
    busy = [driver.service.busy]
    for notice in (*PAUSED, ENDED, WORDS):
        driver.ears(notice)
        busy.append(driver.service.busy)
    for body in ANSWER:
        driver.mouth(body)
        busy.append(driver.service.busy)
    driver.perform(driver.service.playout_started(driver.done["id"]))
    driver.perform(driver.service.playout_stopped(Heard(driver.done["id"], 10, "Yes.")))
    assert busy == [False, *[True] * (len(busy) - 1)]
    assert not driver.service.busy


def test_a_session_is_busy_while_words_are_missing(driver: Driver) -> None:
    driver.do("input_audio_buffer.commit")
    assert driver.service.busy
    driver.ears(Committed("item", 1, 1, 500))
    assert driver.service.busy
    driver.ears(TranscriptFinal(1, 1, "hello", 0.5))
    assert not driver.service.busy


def test_a_session_is_unfinished_until_the_client_has_given_the_result_of_a_function(driver: Driver) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    driver.do("conversation.item.create", item=call)
    assert (driver.service.busy, driver.service.unfinished) == (False, True)
    driver.do(
        "conversation.item.create",
        item={"type": "function_call_output", "call_id": "call_1", "output": "Sun."},
    )
    assert not driver.service.unfinished
