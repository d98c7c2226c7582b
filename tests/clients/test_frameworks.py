"""The realtime clients of Pipecat and LiveKit, unmodified, against a server in a process of its own.

``pipecat_client.py`` and ``livekit_client.py`` drive them, each in an environment of its own, since their
dependencies do not go with those of the server. Nothing but the address says that it is not OpenAI's service.
They print what they saw; what that should be is said here. Whatever a framework warned of counts as an error.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.clients.checks import Seen, of, run_checks
from tests.clients.environments import CannotInstall, environment
from tests.e2e.serving import Served
from units.engines.scripted import ANSWER, HEARD, LONG_ANSWER, SECONDS_PER_CHARACTER

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
RATE = 24_000
OSLO = {"city": "Oslo"}
ASKED = "What is the weather like?"
CALLED = {"called": "get_weather", "with": json.dumps(OSLO)}


def python(name: str) -> str:
    """That of the environment, which must be there in CI."""
    try:
        return str(environment(name))
    except CannotInstall as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def run(name: str, served: Served) -> dict[str, Seen]:
    """What each check of ``NAME_client.py`` saw, by its name. The server must then be free again."""
    checks = run_checks(python(name), "-I", str(HERE / f"{name}_client.py"), served.url)
    free(served)
    return checks


def free(served: Served) -> None:
    """Wait until nobody has a unit."""
    deadline = time.monotonic() + 10
    while True:
        with urllib.request.urlopen(f"{served.url}/v1/pool") as answer:
            busy = any(unit["session"] for unit in json.load(answer)["units"])
        if not busy:
            return
        assert time.monotonic() < deadline, "a client that is gone still has a unit"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pipecat(served: Served) -> dict[str, Seen]:
    return run("pipecat", served)


@pytest.fixture(scope="module")
def livekit(served: Served) -> dict[str, Seen]:
    return run("livekit", served)


def length_of(text: str) -> Any:
    """How many samples it takes to speak ``text``, whose last point is not spoken."""
    second = SECONDS_PER_CHARACTER * RATE
    return pytest.approx(second * len(text.rstrip(".")), abs=second / 2)


def wrote(text: str, role: str = "user") -> Seen:
    return {"role": role, "said": text}


def answered(text: str = ANSWER) -> Seen:
    return {"role": "assistant", "said": text}


# --- Pipecat -------------------------------------------------------------------------------------------

DEGREES = "4"
USED = [{"called": [["get_weather", json.dumps(OSLO)]]}, {"role": "tool", "said": DEGREES}]


def test_pipecat_greets_and_answers_what_is_said_aloud(pipecat: dict[str, Seen]) -> None:
    seen = of(pipecat, "voice_turn")
    greeting = seen["greeting"]
    assert greeting["context"] == [wrote("Say hello!", "developer"), answered()]
    assert greeting["samples"] == length_of(ANSWER)
    assert seen["context"] == [*greeting["context"], wrote(HEARD), answered()]
    assert seen["heard"] == [HEARD]
    assert seen["spoken"] == seen["written"] == ANSWER * 2
    assert seen["samples"] == length_of(ANSWER)
    assert 9000 < seen["loudest"] < 11_000
    assert (seen["turns"], seen["interruptions"]) == ([1, 1], 1)
    assert [output for _input, output in seen["tokens"]] == [len(ANSWER.split())] * 2
    assert all(given > 0 for given, _output in seen["tokens"])


def test_pipecat_is_answered_in_writing(pipecat: dict[str, Seen]) -> None:
    seen = of(pipecat, "written_turn")
    assert seen["context"] == [wrote("Hello"), answered()]
    assert (seen["written"], seen["spoken"], seen["samples"]) == (ANSWER, "", 0)


def test_pipecat_uses_a_tool_and_its_result_is_answered(pipecat: dict[str, Seen]) -> None:
    seen = of(pipecat, "tool_call")
    answer = f"The tool said: {DEGREES}."
    assert seen["used"] == [OSLO]
    assert seen["context"] == [wrote(ASKED), *USED, answered(answer)]
    assert seen["spoken"] == answer
    assert seen["samples"] == length_of(answer)


def test_pipecat_uses_a_tool_when_asked_aloud(pipecat: dict[str, Seen]) -> None:
    seen = of(pipecat, "spoken_tool_call")
    answer = f"The tool said: {DEGREES}."
    assert seen["used"] == [OSLO]
    context = seen["context"][2:]
    context.remove(wrote(HEARD))  # Pipecat takes the words when it gets to them, before or after the call
    assert context == [*USED, answered(answer)]
    assert seen["spoken"] == ANSWER + answer
    assert seen["samples"] == length_of(answer)


def test_pipecat_interrupts_and_the_server_keeps_what_was_heard(pipecat: dict[str, Seen]) -> None:
    seen = of(pipecat, "barge_in")
    assert seen["context"][2:] == [wrote(HEARD), answered()]
    assert RATE < seen["played"] < SECONDS_PER_CHARACTER * len(LONG_ANSWER) * RATE / 2
    assert LONG_ANSWER.startswith(seen["kept"].rstrip())
    assert 10 < len(seen["kept"]) <= seen["played"] / RATE / SECONDS_PER_CHARACTER + 5
    assert (seen["turns"], seen["interruptions"]) == ([1, 1], 1)


def test_pipecat_decides_itself_when_a_turn_is_over(pipecat: dict[str, Seen]) -> None:
    seen = of(pipecat, "own_turns")
    assert seen["context"] == [wrote("Say hello!", "developer"), answered(), wrote(HEARD), answered()]
    assert seen["heard"] == [HEARD]
    assert seen["spoken"] == ANSWER * 2
    assert (seen["turns"], seen["interruptions"]) == ([1, 1], 1)


def test_pipecat_goes_on_with_the_conversation_after_its_connection_broke(pipecat: dict[str, Seen]) -> None:
    seen = of(pipecat, "reconnection")
    again = [answered(), answered(), wrote(HEARD), answered()]
    assert seen["context"] == [wrote("Hello"), *again]
    assert seen["spoken"] == ANSWER * 3
    assert seen["connections"] == 2


# --- LiveKit -------------------------------------------------------------------------------------------


def generated(text: str, *, asked_for: bool, aloud: bool = True) -> Seen:
    """A whole answer of one message."""
    return {
        "texts": [text],
        "modalities": [["audio", "text"] if aloud else ["text"]],
        "samples": length_of(text) if aloud else 0,
        "loudest": pytest.approx(9830, abs=10) if aloud else 0,
        "calls": [],
        "asked_for": asked_for,
    }


def test_livekit_hears_and_answers_what_is_said_aloud(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "voice_turn")
    assert seen["answer"] == generated(ANSWER, asked_for=False)
    assert seen["heard"] == [HEARD]
    assert (seen["started"], seen["stopped"]) == (True, True)
    assert seen["said"][1:] == [answered()]
    ((given, output),) = seen["tokens"]
    assert (given > 0, output) == (True, len(ANSWER.split()))


def test_livekit_has_what_was_said_once(livekit: dict[str, Seen]) -> None:
    assert of(livekit, "voice_turn")["said"] == [wrote(HEARD), answered()]


def test_livekit_uses_a_tool_and_its_result_is_answered(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "tool_call")
    answer = "The tool said: four degrees in Oslo."
    (call,) = seen["asked"]["calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", json.dumps(OSLO))
    assert seen["asked"]["texts"] == []
    assert seen["answer"] == generated(answer, asked_for=True)
    assert seen["said"] == [wrote(ASKED), CALLED, {"gave": "four degrees in Oslo"}, answered(answer)]


def test_livekit_uses_a_tool_when_asked_aloud(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "spoken_tool_call")
    answer = "The tool said: four degrees in Oslo."
    assert seen["answer"] == generated(answer, asked_for=True)
    assert seen["said"][1:] == [CALLED, {"gave": "four degrees in Oslo"}, answered(answer)]


def test_livekit_interrupts_and_the_server_cuts_off_what_was_not_heard(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "barge_in")
    assert seen["truncated"] == [600]
    assert seen["answer"] == generated(ANSWER, asked_for=False)


def test_livekit_asks_for_an_answer_without_instructions(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "bare_reply")
    assert seen["answer"] == generated(ANSWER, asked_for=True, aloud=False)


def test_livekit_edits_the_conversation(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "edited_history")
    assert seen["answer"] == generated("Still here.", asked_for=True, aloud=False)
    assert seen["said"] == [
        wrote("The caller is called Ada.", "system"),
        wrote("Hello"),
        wrote("[[echo:Still here.]]"),
        answered("Still here."),
    ]


def test_livekit_goes_on_with_the_conversation_after_its_connection_broke(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "reconnection")
    answer = "The tool said: four degrees in Oslo."
    assert seen["said"] == [
        wrote(ASKED),
        CALLED,
        {"gave": "four degrees in Oslo"},
        answered(answer),
        wrote("[[echo:Still here.]]"),
        answered("Still here."),
    ]
    assert seen["answers"] == [[answer], ["Still here."]]
    assert seen["connections"] == 2


def test_livekit_runs_a_whole_agent(livekit: dict[str, Seen]) -> None:
    seen = of(livekit, "agent")
    answer = "The tool said: four degrees in Oslo."
    *first, cut, heard, last = seen["said"]
    asked = [wrote(ASKED), CALLED, {"gave": "four degrees in Oslo"}, answered(answer), wrote("[[long]]")]
    assert first == asked
    assert seen["after_tool"] == pytest.approx(SECONDS_PER_CHARACTER * len(answer), abs=0.3)
    assert seen["interrupted"]
    assert LONG_ANSWER.startswith(cut["said"])
    assert (heard, last) == (wrote(HEARD), answered())
