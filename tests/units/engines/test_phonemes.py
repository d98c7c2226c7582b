from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from units.engines.phonemes import phonemes

AMERICAN = [
    ("Hello, world! How are you?", ["həlˈO,", "wˈɜɹld!", "hˈW ɑɹ ju?"]),
    ("Dr. Smith is in.", ["dˈɑktəɹ smˈɪθ ɪz ˈɪn."]),
    ('He said "no".', ['hi sˈɛd "nˈO".']),
    ("(a) b", ["(ˈA) bˈi"]),
    ("3.5", ["θɹˈi pYnt fˈIv"]),
    ("at 3 p.m. today", ["æt θɹˈi pˌiˈɛm tədˈA"]),
    ("你好，OK?", ["ˌOkˈA?"]),
]


@pytest.mark.parametrize(("text", "clauses"), AMERICAN)
def test_clauses_keep_their_punctuation(text: str, clauses: list[str]) -> None:
    assert phonemes(text) == clauses


def test_british_english_differs() -> None:
    assert phonemes("their water", british=True) == ["ðɛː wˈɔːtə"]
    assert phonemes("their water") == ["ðɛɹ wˈɔTəɹ"]


@pytest.mark.parametrize("text", ["", " ", "...", "**", "—", '"', "😀", "你好。", "Привет!", "\x00\n", "(?)"])
def test_what_cannot_be_read_gives_nothing(text: str) -> None:
    assert phonemes(text) == []


def test_a_latin_abbreviation_is_read_in_english() -> None:
    assert phonemes("e.g. this") == phonemes("for example this")


@pytest.mark.parametrize(("text", "sounds"), [("I do", "ˌI dˈu"), ("and I'm", "ænd ˌIm"), ("eye", "ˈI")])
def test_the_word_i_has_a_stress(text: str, sounds: str) -> None:
    assert phonemes(text) == [sounds]


def test_threads_do_not_disturb_each_other() -> None:
    texts = [f"number {n} is here, and so on" for n in range(40)]
    expected = [phonemes(text, british=bool(n % 2)) for n, text in enumerate(texts)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pair: phonemes(pair[1], british=bool(pair[0] % 2)), enumerate(texts)))
    assert found == expected


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_no_text_crashes_it(text: str) -> None:
    assert all(clause.strip() for clause in phonemes(text))
