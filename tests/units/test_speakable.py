from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from units.speakable import speakable

MARKUP = [
    ("**bo", "bo"),
    ("ld** text", "ld text"),
    ("**bold**, *it* and `code`", "bold, it and code"),
    ("## Title\nText here", "Title. Text here"),
    ("- a\n- b", "a, b"),
    ("1. One\n2. Two", "1, One, 2, Two"),
    ("snake_case", "snake case"),
    ("[text](http://x.y/z)", "text"),
    ("![a cat](cat.png)", "a cat"),
    ("```python\nx = 1\n```", "x equals 1"),
    ("Nice :smile: day 😀", "Nice day"),
    ("Family 👨‍👩‍👧 and flag 🇫🇷.", "Family and flag."),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b. 1, 2."),
    ("A fact[^1].", "A fact."),
    ("> quote", "quote"),
    ("a <b>bold</b> move", "a bold move"),
    ("I <3 you", "I you"),
    ("Hello\n\nWorld", "Hello. World"),
    ("Hello.\nWorld", "Hello. World"),
]

NUMBERS = [
    ("82", "82"),
    ("It costs $3.567.", "It costs 3.567 dollars."),
    ("$3.50", "3 dollars and 50 cents"),
    ("$1,234.56", "1234 dollars and 56 cents"),
    ("$0.99", "99 cents"),
    ("$1", "1 dollar"),
    ("$5 million", "5 million dollars"),
    ("€10", "10 euros"),
    ("1999", "1999"),
    ("2026-03-01", "March 1st, 2026"),
    ("2026-99-01", "2026-99-01"),
    ("3:05 pm", "3 oh 5 PM"),
    ("at 3:00 p.m.", "at 3 PM."),
    ("15:30", "15 30"),
    ("10%", "10 percent"),
    ("+1 (555) 010-9999", "plus 1, 5 5 5, 0 1 0, 9 9 9 9"),
    ("v2.0.1", "version 2 point 0 point 1"),
    ("192.168.0.1", "192 dot 168 dot 0 dot 1"),
    ("1/2", "one half"),
    ("7/8", "7 over 8"),
    ("IV", "4"),
    ("World War II", "World War 2"),
    ("an IV drip", "an IV drip"),
    ("20 kg", "20 kilograms"),
    ("1 kg", "1 kilogram"),
    ("60 km/h", "60 kilometers per hour"),
    ("5°C", "5 degrees Celsius"),
    ("1,000,000", "1000000"),
]

SYMBOLS = [
    ("3 * 4 * 5", "3 times 4 times 5"),
    ("2 + 2 = 4", "2 plus 2 equals 4"),
    ("5 - 3", "5 minus 3"),
    ("5 < 10", "5 is less than 10"),
    ("5 < 6 and think", "5 is less than 6 and think"),
    ("10-20 people", "10 to 20 people"),
    ("x^2", "x squared"),
    ("C# and C++", "C# and C++"),
    ("R&D", "R and D"),
    ("and/or", "and or"),
    ("See https://www.example.com/a/b?c=1.", "See example dot com slash a slash b."),
    ("Write to ann.lee@example.com.", "Write to ann dot lee at example dot com."),
    ("main.py", "main dot py"),
    ("#1", "number 1"),
]

SILENT = ["", " ", "...", "**", "—", '""', "😀", "\n", "---", "```", "|---|---|"]

PLAIN = [
    "I am here.",
    "don't",
    "Wait...",
    "“Hi,” he said.",
    "note: x",
    "你好",
    "I have 3 apples, 5 pears.",
    "1990s",
]


@pytest.mark.parametrize(("written", "spoken"), MARKUP + NUMBERS + SYMBOLS)
def test_what_is_written_is_spoken_as(written: str, spoken: str) -> None:
    assert speakable(written) == spoken


@pytest.mark.parametrize("text", SILENT)
def test_text_without_a_word_is_silent(text: str) -> None:
    assert speakable(text) == ""


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert speakable(text) == text


def test_other_languages_lose_markup_but_get_no_english_words() -> None:
    assert speakable("**10 %** & 5 kg", "fr") == "10 % & 5 kg"


@pytest.mark.parametrize(
    "unit", ["a", "1", "*", "|", "[", "(", "<", "_a", "1,", "1.", "- ", "a@", ":a", "$1 ", "x\n"]
)
def test_time_grows_no_worse_than_the_text(unit: str) -> None:
    start = time.process_time()
    speakable(unit * 3000)
    assert time.process_time() - start < 2


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_text_gives_text_without_line_breaks(text: str) -> None:
    assert "\n" not in speakable(text)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["hello", "world", "the", "seven", "apples,", "it's"]), min_size=1, max_size=9)
)
def test_words_survive(words: list[str]) -> None:
    assert speakable(" ".join(words)).rstrip(",") == " ".join(words).rstrip(",")
