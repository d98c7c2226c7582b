"""The output processor: from streamed text to what is shown and what is said.

It leaves out what a model thinks aloud, announces every piece of text at once, and cuts the text into
pieces to be spoken: the first one short, since the first sound waits for it, the others whole sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from units.messages import (
    Begin,
    Finish,
    Sentence,
    TextDelta,
    TextFinished,
    Token,
    ToolCall,
    ToolCalled,
    Voice,
)
from units.speakable import speakable
from units.thoughts import ThoughtFilter

_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]|\n+")
_CLAUSE_END = re.compile(r"[,;:–—][\"'”’)\]]*\s+|[，、；：]")

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|approx|No|Fig|Jr|Sr)|\b[A-Z]|(?:^|\s)\d{1,3})\.\s+$"
)

FIRST_MIN = 12
"""Characters that the first piece must have to be worth speaking by itself."""

FIRST_MAX = 60
"""Without any punctuation the first piece is cut at a word once it is this long."""

PIECE_MAX = 240
"""Longest piece; more would hold up the sound that follows."""


def process(
    pieces: Iterable[Begin | Token | ToolCall | Finish],
) -> Iterator[TextDelta | ToolCalled | TextFinished | Sentence]:
    """Yield notices for every piece of text and call, in order, and sentences for the voice."""
    voice: Voice | None = None
    thoughts = ThoughtFilter()
    pending, first = "", True
    for piece in pieces:
        match piece:
            case Begin():
                voice = piece.voice
            case ToolCall():
                yield ToolCalled(piece)
            case Finish():
                if rest := thoughts.finish():
                    yield TextDelta(rest)
                    pending += rest
                yield TextFinished(piece)
            case Token(text):
                if not (text := thoughts.feed(text)):
                    continue
                yield TextDelta(text)
                if voice is None:
                    continue
                complete, pending = cut(pending + text, first=first)
                first = first and not complete
                yield from _sentences(complete, voice)
    if voice and pending.strip():
        yield from _sentences([pending], voice)


def cut(text: str, *, first: bool) -> tuple[list[str], str]:
    """Complete pieces at the front of ``text``, and the rest. The pieces and the rest concatenate to it."""
    complete = []
    while end := _end_of_piece(text, first=first):
        complete.append(text[:end])
        text, first = text[end:], False
    return complete, text


def _end_of_piece(text: str, *, first: bool) -> int:
    """Where the first complete piece of ``text`` ends, 0 when it is not complete yet."""
    if first:
        for match in _CLAUSE_END.finditer(text):
            if match.end() >= FIRST_MIN:
                sentence = _sentence_end(text)
                return min(match.end(), sentence or match.end())
    if end := _sentence_end(text):
        return end
    limit = FIRST_MAX if first else PIECE_MAX
    if len(text) > limit:
        clauses = [match.end() for match in _CLAUSE_END.finditer(text, 0, limit)]
        return clauses[-1] if clauses else text.rfind(" ", 0, limit) + 1 or limit
    return 0


def _sentence_end(text: str) -> int:
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[: match.end()]) and text[: match.end()].strip():
            return match.end()
    return 0


def _sentences(pieces: Iterable[str], voice: Voice) -> Iterator[Sentence]:
    for piece in pieces:
        yield Sentence(piece, speakable(piece), voice)
