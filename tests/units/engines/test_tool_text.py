"""Tool calls written as text."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from units.engines.tool_text import split_tool_text
from units.messages import Finish, Token, ToolCall

NAMES = ("get_weather", "stop")
OSLO = {"city": "Oslo"}
CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


def split(pieces: Iterable[str], names: Iterable[str] = NAMES) -> tuple[str, list[tuple[str, object]]]:
    """The text and the calls that ``pieces`` amount to."""
    items = [*map(Token, pieces), Finish()]
    found = list(split_tool_text(items, names))
    assert found.pop() == Finish()
    text = "".join(item.text for item in found if isinstance(item, Token))
    return text, [(c.name, json.loads(c.arguments)) for c in found if isinstance(c, ToolCall)]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("written", "text", "calls"),
    [
        pytest.param(CALL, "", [("get_weather", OSLO)], id="bare"),
        pytest.param(f"  \n{CALL}\n", "  \n", [("get_weather", OSLO)], id="space around"),
        pytest.param(f"```json\n{CALL}\n```", "", [("get_weather", OSLO)], id="fenced"),
        pytest.param(f"```\n{CALL}\n```", "", [("get_weather", OSLO)], id="fenced without a language"),
        pytest.param(f"<tool_call>\n{CALL}\n</tool_call>", "", [("get_weather", OSLO)], id="tagged"),
        pytest.param(f"<tools>\n{CALL}\n</tools>", "", [("get_weather", OSLO)], id="wrong tag"),
        pytest.param(f"<json>\n{CALL}\n", "", [("get_weather", OSLO)], id="made-up tag"),
        pytest.param("a <b> c <3 `d` <", "a <b> c <3 `d` <", [], id="no call behind the tag"),
        pytest.param(f"<tool_call>{CALL}</tool_call>" * 2, "", [("get_weather", OSLO)] * 2, id="two tags"),
        pytest.param(f"[{CALL}, {CALL}]", "", [("get_weather", OSLO)] * 2, id="a list"),
        pytest.param(f"{CALL}\nIt is sunny.", "", [("get_weather", OSLO)], id="a guess behind it is dropped"),
        pytest.param(f"Let me see.\n{CALL}", "Let me see.\n", [("get_weather", OSLO)], id="words before it"),
        pytest.param(
            '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
            "",
            [("get_weather", OSLO)],
            id="parameters",
        ),
        pytest.param(
            '{"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}',
            "",
            [("get_weather", OSLO)],
            id="arguments as a string",
        ),
        pytest.param(
            '{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}',
            "",
            [("get_weather", OSLO)],
            id="nested in function",
        ),
        pytest.param(f'{{"tool_calls": [{CALL}]}}', "", [("get_weather", OSLO)], id="a list of tool calls"),
        pytest.param('{"get_weather": {"city": "Oslo"}}', "", [("get_weather", OSLO)], id="name as the key"),
        pytest.param('{"name": "stop"}', "", [("stop", {})], id="no arguments"),
        pytest.param(CALL[:-1], "", [("get_weather", OSLO)], id="last bracket missing"),
        pytest.param(
            f"<tool_call>{CALL[:-1]}</tool_call>", "", [("get_weather", OSLO)], id="missing before a tag"
        ),
        pytest.param(CALL[:-2] + ",}}", "", [("get_weather", OSLO)], id="a comma too many"),
        pytest.param(
            "{'name': 'get_weather', 'arguments': {'city': 'Oslo'}}",
            "",
            [("get_weather", OSLO)],
            id="single quotes",
        ),
        pytest.param(
            '{"name": "get_weather", "arguments": {"city": "O}s\\"lo"}}',
            "",
            [("get_weather", {"city": 'O}s"lo'})],
            id="brackets in a string",
        ),
    ],
)
def test_a_written_call_becomes_a_call(size: int, written: str, text: str, calls: list[object]) -> None:
    pieces = [written[i : i + size] for i in range(0, len(written), size)]
    assert split(pieces) == (text, calls)


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello there.",
        "5 < 10 and i <3 you",
        "<think>hm</think>Hello",
        "a {name} and [1] and {}",
        '{"temperature": 3}',
        '{"name": "unknown_tool", "arguments": {}}',
        '{"name": "Oslo", "type": "city"} is JSON',
        "```python\nprint({'a': 1})\n```",
        "`get_weather` is a tool",
        "<tool_call>never mind</tool_call>",
        '{"name": "get_wea',
        "```",
        "<tool_ca",
        "{",
        "[[[",
        "}]}",
    ],
)
def test_any_other_text_passes_unchanged(size: int, text: str) -> None:
    assert split(text[i : i + size] for i in range(0, len(text), size)) == (text, [])


def test_without_tools_even_a_call_is_text() -> None:
    assert split([CALL], names=()) == (CALL, [])


def test_plain_text_is_not_held_back() -> None:
    pieces = iter([Token("Well"), Token(" then"), Token(" {"), Token("x}")])
    answer = split_tool_text(pieces, NAMES)
    assert [next(answer), next(answer), next(answer)] == [Token("Well"), Token(" then"), Token(" ")]


def test_a_call_is_given_as_soon_as_it_is_complete() -> None:
    answer = split_tool_text(iter([Token(CALL), Token("never reached")]), NAMES, new_id=lambda: "call_1")
    assert next(answer) == ToolCall("call_1", "get_weather", '{"city": "Oslo"}')


def test_a_real_call_passes() -> None:
    call = ToolCall("1", "get_weather", "{}")
    assert list(split_tool_text([Token("a"), call, Finish()], NAMES)) == [Token("a"), call, Finish()]


def test_held_text_comes_before_what_follows_it() -> None:
    call = ToolCall("1", "get_weather", "{}")
    assert list(split_tool_text([Token("{"), call], NAMES)) == [Token("{"), call]


@given(st.lists(st.text(alphabet="<>`{}[]\":,'\\ ntoslcame_")))
def test_text_without_a_known_name_survives_any_cutting(pieces: list[str]) -> None:
    assert split(pieces, names=("get_weather_forecast",)) == ("".join(pieces), [])
