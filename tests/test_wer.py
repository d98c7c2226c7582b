"""The ruler that transcripts are measured with."""

from __future__ import annotations

import pytest

from tests.wer import normalise, word_error_rate


def test_case_punctuation_and_hyphens_do_not_count() -> None:
    assert normalise("Mr. Dashwood, cold-hearted?") == ["mister", "dashwood", "cold", "hearted"]


@pytest.mark.parametrize(
    ("heard", "rate"),
    [
        ("one two three four", 0.0),
        ("one two four", 0.25),
        ("one two too three four", 0.25),
        ("one two tree four", 0.25),
        ("", 1.0),
        ("one two three four one two three four", 1.0),
    ],
)
def test_every_lost_added_or_changed_word_is_an_error(heard: str, rate: float) -> None:
    assert word_error_rate("One two three four.", heard) == rate


def test_words_where_nothing_was_said_are_errors() -> None:
    assert word_error_rate("", "thank you") == 2.0
