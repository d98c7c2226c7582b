"""The RealtimeSession of OpenAI's agents SDK for JavaScript, unmodified, over its WebSocket transport.

``agents_js/checks.mjs`` drives it in Node with an ephemeral key of the server, and prints what it saw; what
that should be is said here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.checks import Seen, of, run_checks
from tests.e2e.serving import SCRIPTED, serving
from tests.mcp_server import mcp_server
from units.engines.scripted import ANSWER, HEARD, LONG_ANSWER, SECONDS_PER_CHARACTER

pytestmark = pytest.mark.e2e

RATE = 24_000


@pytest.fixture(scope="module")
def checks(agents_js: Path) -> Iterator[dict[str, Seen]]:
    """What each check saw, by its name."""
    with (
        mcp_server() as tools,
        serving(*SCRIPTED, "--num-pipelines", "2", "--mcp-server", tools.url) as served,
    ):
        yield run_checks("node", str(agents_js / "checks.mjs"), served.url, tools.url)


def length_of(text: str) -> Any:
    """How many samples it takes to speak ``text``."""
    return pytest.approx(SECONDS_PER_CHARACTER * len(text) * RATE, rel=0.05)


def wrote(text: str) -> Seen:
    return {"role": "user", "status": "completed", "said": text, "kind": "input_text"}


def spoke(text: str = HEARD) -> Seen:
    return {"role": "user", "status": "completed", "said": text, "kind": "input_audio"}


def answered(text: str = ANSWER, kind: str = "output_audio", status: str = "completed") -> Seen:
    return {"role": "assistant", "status": status, "said": text, "kind": kind}


def called(name: str, arguments: str, gave: str) -> Seen:
    return {"called": name, "with": arguments, "gave": gave, "status": "completed"}


def test_a_written_turn_is_answered_aloud(checks: dict[str, Seen]) -> None:
    seen = of(checks, "text_turn")
    assert seen["history"] == [wrote("Hello"), answered()]
    assert seen["answers"] == [ANSWER]
    assert seen["samples"] == length_of(ANSWER)
    assert (seen["instructions"], seen["tools"]) == ("Be brief.", ["get_weather"])


def test_a_written_turn_is_answered_in_writing(checks: dict[str, Seen]) -> None:
    seen = of(checks, "written_answer")
    assert seen["history"] == [wrote("Hello"), answered(kind="output_text")]
    assert seen["samples"] == 0


def test_a_spoken_turn_is_heard_and_answered(checks: dict[str, Seen]) -> None:
    seen = of(checks, "voice_turn")
    assert seen["history"] == [spoke(), answered()]
    assert seen["samples"] == length_of(ANSWER)


def test_a_turn_is_committed_by_hand(checks: dict[str, Seen]) -> None:
    seen = of(checks, "manual_turn")
    assert seen["history"] == [spoke(), answered()]
    assert seen["started"] == 0


def test_a_tool_is_run_and_its_result_answered(checks: dict[str, Seen]) -> None:
    seen = of(checks, "tool_call")
    assert seen["used"] == [{"city": "Oslo"}]
    call = called("get_weather", '{"city": "Oslo"}', "four degrees")
    answer = "The tool said: four degrees."
    assert seen["history"] == [wrote("What is the weather like?"), call, answered(answer)]
    assert seen["answers"] == ["", answer]


OSLO = '{"city": "Oslo"}'


def test_a_tool_of_an_mcp_server_is_used(checks: dict[str, Seen]) -> None:
    seen = of(checks, "mcp_call")
    assert seen["listed"] == seen["known"] == ["get_weather"]
    assert seen["completed"] == [["get_weather", "four degrees in Oslo"]]
    call = {"called": "get_weather", "with": OSLO, "gave": "four degrees in Oslo"}
    answer = answered("The tool said: four degrees in Oslo.")
    assert seen["history"] == [wrote("What is the weather like?"), call, answer]
    assert (seen["lists"], seen["said"]) == (1, False)


def test_a_tool_of_an_mcp_server_is_used_when_the_user_approves(checks: dict[str, Seen]) -> None:
    seen = of(checks, "mcp_approved")
    assert (seen["asked"], seen["ended"]) == (["mcp_approval_request"], 1)
    call = {"called": "get_weather", "with": OSLO, "gave": "four degrees in Oslo"}
    asks = {"asks": "get_weather", "with": {"city": "Oslo"}}
    answer = answered("The tool said: four degrees in Oslo.")
    assert seen["history"] == [wrote("What is the weather like?"), call, asks, answer]


def test_a_tool_of_an_mcp_server_is_not_used_when_the_user_refuses(checks: dict[str, Seen]) -> None:
    seen = of(checks, "mcp_refused")
    assert (seen["asked"], seen["ended"]) == (["mcp_approval_request"], 0)
    assert seen["history"][-1]["said"].startswith("The tool said: Error: The user did not approve this call.")


def test_the_history_is_complete_and_in_order(checks: dict[str, Seen]) -> None:
    seen = of(checks, "whole_history")
    call = called("get_weather", '{"city": "Oslo"}', "four degrees")
    assert seen["history"] == [
        wrote("Hello"),
        answered(),
        wrote("What is the weather like?"),
        call,
        answered("The tool said: four degrees."),
        spoke(),
        answered(),
    ]
    assert seen["ids"] == seen["added"]


def test_a_conversation_is_handed_to_another_agent(checks: dict[str, Seen]) -> None:
    seen = of(checks, "handoff")
    assert (seen["agent"], seen["instructions"]) == ("Meteorologist", "Know the weather.")
    result = '{"assistant":"Meteorologist"}'
    call = called("transfer_to_Meteorologist", "{}", result)
    assert seen["history"][1:] == [call, answered(f"The tool said: {result}.")]


def test_speaking_interrupts_and_the_history_has_what_was_heard(checks: dict[str, Seen]) -> None:
    seen = of(checks, "barge_in")
    asked, cut, *rest = seen["history"]
    assert (asked, rest) == (wrote("[[long]]"), [spoke(), answered()])
    assert seen["interrupted"] >= 1
    assert 0 < len(cut["said"]) <= seen["audio_end_ms"] / 1000 / SECONDS_PER_CHARACTER + 1
    assert LONG_ANSWER.startswith(cut["said"])


def test_a_stop_button_cancels_the_answer(checks: dict[str, Seen]) -> None:
    seen = of(checks, "stop_button", cancels=True)
    assert seen["statuses"] == ["cancelled", "completed"]
    assert seen["interrupted"] == 1
    assert seen["audio_end_ms"] < 1000
    assert seen["samples"] < SECONDS_PER_CHARACTER * len(seen["text"]) * RATE
    assert [item.get("status") for item in seen["history"]] == [
        "completed",
        "incomplete",
        "completed",
        "completed",
    ]
    assert seen["history"][-1] == answered("Still here.")


def test_the_history_is_edited(checks: dict[str, Seen]) -> None:
    seen = of(checks, "edited_history")
    assert seen["history"] == [wrote("Remember that."), answered(kind="output_text")]


def test_a_guardrail_stops_an_answer(checks: dict[str, Seen]) -> None:
    seen = of(checks, "guardrail", cancels=True)
    assert seen["tripped"] == ["no numbers"]
    assert len(seen["answers"]) == 2
    assert seen["answers"][1] == ANSWER


def test_a_closed_session_connects_again(checks: dict[str, Seen]) -> None:
    seen = of(checks, "reconnection")
    turns = [[wrote(f"[[echo:Turn {n}.]]"), answered(f"Turn {n}.")] for n in (1, 2)]
    assert seen["histories"] == turns
    assert (seen["sessions"], seen["status"]) == (2, "disconnected")
