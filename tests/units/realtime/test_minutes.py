"""What the service says was said, and when it is certain of it."""

from __future__ import annotations

import base64

import pytest

from tests.units.realtime.test_mcp import WEATHER, Session, mcp
from tests.units.realtime.test_service import ANSWER, ENDED, HI, PAUSED, WORDS, Driver, audio
from units.messages import (
    End,
    Finish,
    RecordingHeard,
    Said,
    SpeechResumed,
    SpeechStarted,
    TextDelta,
    TextFinished,
    ToolCall,
    ToolCalled,
    TranscriptFailed,
)
from units.playout import Heard
from units.realtime.effects import StopPlaying
from units.realtime.servers import ToolFault

YES = (TextDelta("Yes, I do."), TextFinished(Finish()), audio("Yes, I do.", 600), End())


class Remote(Driver):
    """A service whose client plays the sound itself."""

    def __init__(self) -> None:
        super().__init__()
        self.service.open(sends_audio=True)

    def ask(self, text: str = "hi") -> str:
        """Ask; the id of the answer."""
        content = [{"type": "input_text", "text": text}]
        self.do("conversation.item.create", item={**HI, "content": content})
        self.do("response.create")
        return str(self.events[-1]["response"]["id"])

    @property
    def message_id(self) -> str:
        return str(next(item["id"] for item in self.done["output"] if item["type"] == "message"))

    def truncate(self, ms: int) -> None:
        self.do("conversation.item.truncate", item_id=self.message_id, content_index=0, audio_end_ms=ms)


def minutes(driver: Driver) -> list[tuple[str, str, str, bool]]:
    return [(said.role, said.kind, said.text, said.interrupted) for said in driver.of(Said)]


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def remote() -> Remote:
    return Remote()


def test_a_turn_and_its_answer_are_said_when_they_are_certain(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS)
    driver.mouth(*YES)
    assert minutes(driver) == []
    driver.ears(ENDED)
    assert minutes(driver) == [("user", "speech", "hello", False)]
    driver.perform(driver.service.playout_stopped(Heard(driver.done["id"], 600, "Yes, I do.")))
    (_, answer) = driver.of(Said)
    assert answer == Said(
        driver.done["output"][0]["id"], "assistant", "speech", "Yes, I do.", response_id=driver.done["id"]
    )


def test_words_are_said_also_when_the_client_wants_no_transcripts(driver: Driver) -> None:
    driver.configure(audio={"input": {"transcription": None}})
    driver.ears(*PAUSED, WORDS, ENDED)
    assert minutes(driver) == [("user", "speech", "hello", False)]


def test_what_could_not_be_recognised_is_said_to_be_lost(driver: Driver) -> None:
    driver.ears(*PAUSED, TranscriptFailed(1, 1, "It broke."), ENDED)
    (lost,) = driver.of(Said)
    assert (lost.role, lost.text, lost.error) == ("user", "", "It broke.")


def test_of_an_interrupted_answer_only_what_was_heard_is_said(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS, ENDED)
    driver.mouth(*YES)
    driver.heard = [Heard(driver.done["id"], 200, "Yes,")]
    driver.ears(SpeechStarted(2, 2000))
    assert minutes(driver)[1:] == [("assistant", "speech", "Yes,", True)]


def test_an_answer_of_which_nothing_was_heard_is_not_said(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS, ENDED)
    driver.mouth(*YES)
    driver.heard = [Heard(driver.done["id"], 0, "")]
    driver.ears(SpeechStarted(2, 2000))
    assert minutes(driver)[1:] == []


def test_an_answer_that_is_silenced_while_it_is_made_is_said_once(driver: Driver) -> None:
    driver.do("conversation.item.create", item=HI)
    driver.do("response.create")
    driver.mouth(*YES[:3])
    id = next(event["response"]["id"] for event in driver.events if event["type"] == "response.created")
    driver.heard = [Heard(id, 200, "Yes,")]
    driver.do("output_audio_buffer.clear")
    driver.mouth(TextDelta(" More."), audio(" More."), TextFinished(Finish()), End())
    assert minutes(driver) == [("user", "text", "hi", False), ("assistant", "speech", "Yes,", True)]


def test_a_call_that_ends_in_an_answer_says_what_was_heard_of_it(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS, ENDED)
    driver.mouth(*YES)
    (said,) = driver.service.ended([Heard(driver.done["id"], 300, "Yes, I")], {})
    assert (said.text, said.interrupted) == ("Yes, I", True)


@pytest.mark.parametrize(
    "notices",
    [
        (SpeechStarted(1, 0),),
        PAUSED,
        (*PAUSED, WORDS, SpeechResumed(1)),
        (*PAUSED, ENDED),
    ],
)
def test_a_call_that_ends_before_the_words_are_known_says_that_there_was_speech(
    driver: Driver, notices: tuple[object, ...]
) -> None:
    driver.ears(*notices)
    (said,) = driver.service.ended([], {})
    (started,) = [event for event in driver.events if event["type"] == "input_audio_buffer.speech_started"]
    assert (said.item_id, said.role, said.kind, said.text) == (started["item_id"], "user", "speech", "")
    assert "before the words were known" in said.error


def test_a_call_that_ends_before_a_commit_was_looked_at_says_that_there_was_speech(driver: Driver) -> None:
    driver.configure(audio={"input": {"turn_detection": None}})
    driver.do("input_audio_buffer.commit")
    (said,) = driver.service.ended([], {})
    assert said.error


def test_a_call_that_ends_before_sound_in_an_item_is_recognised_says_that_there_was_speech(
    driver: Driver,
) -> None:
    sound = base64.b64encode(bytes(9600)).decode()
    driver.do("conversation.item.create", item={**HI, "content": [{"type": "input_audio", "audio": sound}]})
    (said,) = driver.service.ended([], {})
    assert (said.role, said.kind, said.text) == ("user", "speech", "")
    assert said.error


def test_last_words_that_are_known_are_said_though_the_turn_was_not_over(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS)
    (said,) = driver.service.ended([], {})
    assert (said.text, said.error) == ("hello", "")


def test_a_call_that_ends_in_silence_has_no_last_words(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS, ENDED, SpeechStarted(2, 2000))
    driver.do("input_audio_buffer.clear")
    assert driver.service.ended([], {}) == []


def test_an_answer_in_writing_is_said_when_it_is_written(driver: Driver) -> None:
    driver.configure(output_modalities=["text"])
    driver.do("conversation.item.create", item=HI)
    driver.do("response.create")
    driver.mouth(TextDelta("Yes."), TextFinished(Finish()), End())
    assert minutes(driver)[1:] == [("assistant", "text", "Yes.", False)]


def test_what_is_made_for_a_program_is_not_said(driver: Driver) -> None:
    driver.do("response.create", response={"conversation": "none", "output_modalities": ["text"]})
    driver.mouth(TextDelta("Yes."), TextFinished(Finish()), End())
    assert minutes(driver) == []


def test_what_a_client_plays_is_said_when_it_has_not_cut_it_short_in_time(remote: Remote) -> None:
    remote.ask()
    remote.mouth(*YES)
    assert minutes(remote) == [("user", "text", "hi", False)]
    remote.ears(*PAUSED, WORDS, ENDED)
    assert minutes(remote)[1:] == [
        ("assistant", "speech", "Yes, I do.", False),
        ("user", "speech", "hello", False),
    ]


def test_what_a_client_has_cut_short_is_said_so_far(remote: Remote) -> None:
    remote.ask()
    remote.mouth(*YES)
    remote.ears(SpeechStarted(1, 500))
    remote.truncate(300)
    remote.truncate(100)
    assert minutes(remote)[1:] == [("assistant", "speech", "Yes,", True)]
    assert remote.of(StopPlaying)[:2] == [StopPlaying(), StopPlaying(remote.message_id, 300)]


def test_what_a_client_has_deleted_was_said_all_the_same(remote: Remote) -> None:
    remote.ask()
    remote.mouth(*YES)
    remote.do("conversation.item.delete", item_id=remote.message_id)
    assert minutes(remote)[1:] == [("assistant", "speech", "Yes, I do.", False)]


@pytest.mark.parametrize(("seconds", "words"), [(0.3, "Yes,"), (9.0, "Yes, I do.")])
def test_a_client_that_leaves_in_an_answer_has_heard_what_it_had_time_for(
    remote: Remote, seconds: float, words: str
) -> None:
    remote.ask()
    remote.mouth(*YES)
    (said,) = remote.service.ended([], {remote.message_id: seconds})
    assert (said.text, said.interrupted) == (words, seconds < 1)


def test_tools_and_their_results_are_said(driver: Driver) -> None:
    driver.do("conversation.item.create", item=HI)
    driver.do("response.create")
    driver.mouth(ToolCalled(ToolCall("call_1", "weather", '{"city":"Oslo"}')), TextFinished(Finish()), End())
    result = {"type": "function_call_output", "call_id": "call_1", "output": "4 degrees"}
    driver.do("conversation.item.create", item=result)
    (_, call, output) = driver.of(Said)
    assert (call.role, call.kind, call.name, call.text) == (
        "assistant",
        "tool_call",
        "weather",
        '{"city":"Oslo"}',
    )
    assert call.response_id == driver.done["id"]
    assert (output.role, output.kind, output.text) == ("tool", "tool_result", "4 degrees")
    assert call.tool_call_id == output.tool_call_id == "call_1"


def test_tools_of_mcp_servers_are_said(driver: Driver) -> None:
    session = Session()
    session.configure(tools=[mcp()])
    session.list(WEATHER)
    session.ask()
    session.call()
    (call,) = session.of(Said)[1:]
    session.perform(session.service.tool_returned(call.item_id, "4 degrees"))
    session.ask()
    session.call()
    session.perform(
        session.service.tool_returned(session.of(Said)[-1].item_id, ToolFault("http_error", "No."))
    )
    outputs = [said for said in session.of(Said) if said.kind == "tool_result"]
    assert (call.kind, call.name, call.text) == ("tool_call", "get_weather", '{"city": "Oslo"}')
    assert [(each.name, each.text, each.error) for each in outputs] == [
        ("get_weather", "4 degrees", ""),
        ("get_weather", "", "No."),
    ]


def test_sound_in_an_item_is_said_when_it_has_been_recognised(driver: Driver) -> None:
    sound = base64.b64encode(bytes(9600)).decode()
    content = [{"type": "input_text", "text": "Listen:"}, {"type": "input_audio", "audio": sound}]
    driver.do("conversation.item.create", item={**HI, "content": content})
    assert minutes(driver) == [("user", "text", "Listen:", False)]
    driver.ears(RecordingHeard(1, "hello", 0.2))
    assert minutes(driver)[1:] == [("user", "speech", "hello", False)]


def test_speculation_says_nothing(driver: Driver) -> None:
    driver.ears(*PAUSED, WORDS)
    driver.mouth(ToolCalled(ToolCall("call_1", "weather", "{}")), *ANSWER)
    driver.do("session.update", session={"type": "realtime"})
    assert minutes(driver) == []
