from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from units.thoughts import ThoughtFilter

CASES = [
    ("Hello.", "Hello."),
    ("<think>Hm.</think>Hello.", "Hello."),
    ("<think>Hm.</think>\n\nHello.", "Hello."),
    ("<THINKING>Hm.</THINKING>Hello.", "Hello."),
    ("<think></think>Hello.", "Hello."),
    ("Hello <think>Hm.</think>you.", "Hello you."),
    ("<think>a</think>One.<reasoning>b</reasoning>Two.", "One.Two."),
    ("<think>never closed", ""),
    ("One. <thought>never closed", "One. "),
    ("1 < 2 and <b>", "1 < 2 and <b>"),
    ("a <thin", "a <thin"),
    ("<<think>x</think>", "<"),
    ("<think>a < b </thin </think>c", "c"),
    ("\n Hello", "Hello"),
    ("", ""),
]


def filtered(pieces: list[str]) -> str:
    thoughts = ThoughtFilter()
    return "".join([*map(thoughts.feed, pieces), thoughts.finish()])


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_thoughts_are_left_out(text: str, expected: str) -> None:
    assert filtered([text]) == expected


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_tags_may_be_cut_anywhere(text: str, expected: str) -> None:
    assert filtered([*text]) == expected
    for cut in range(len(text)):
        assert filtered([text[:cut], text[cut:]]) == expected


def test_text_is_not_held_back_for_a_tag_that_it_cannot_become() -> None:
    thoughts = ThoughtFilter()
    assert thoughts.feed("1 <") == "1 "
    assert thoughts.feed(" 2") == "< 2"


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "a", "<th", "ink>", "</", "b"]), max_size=8))
def test_how_the_text_is_cut_makes_no_difference(pieces: list[str]) -> None:
    assert filtered(pieces) == filtered(["".join(pieces)])


@given(st.text(alphabet="ab <>/think.", max_size=20).filter(lambda text: "<think>" not in text))
def test_text_without_thoughts_passes_whole(text: str) -> None:
    assert filtered([*text]) == text.lstrip()
