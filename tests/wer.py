"""Word error rate: what a transcript got wrong, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ABBREVIATED = {"mr": "mister", "mrs": "missus", "dr": "doctor", "ok": "okay"}


def normalise(text: str) -> list[str]:
    """Words of ``text`` without case, punctuation, hyphens and common abbreviations."""
    words = re.sub(r"[^\w\s']", " ", text.lower().replace("’", "'")).split()
    return [_ABBREVIATED.get(word, word) for word in (word.strip("'_") for word in words) if word]


def word_errors(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Fewest words to insert, delete or replace (Levenshtein) to get from ``heard`` to ``reference``."""
    row = list(range(len(heard) + 1))
    for i, expected in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, word in enumerate(heard, 1):
            cheapest = min(row[j] + 1, row[j - 1] + 1, diagonal + (expected != word))
            diagonal, row[j] = row[j], cheapest
    return row[-1]


def word_error_rate(reference: str, heard: str) -> float:
    """Errors per word of ``reference``, both normalised. An empty reference counts as one word."""
    expected = normalise(reference)
    return word_errors(expected, normalise(heard)) / max(1, len(expected))
