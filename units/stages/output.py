"""The output processor: from streamed text to what is shown and what is said.

It leaves out what a model thinks aloud, announces every piece of text at once, and cuts the text into
pieces to be spoken: the first one short, since the first sound waits for it, the others whole sentences,
or pieces that grow when the voice cannot be heard before the whole piece is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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

FIRST_MIN = 10
"""Characters that the first piece must have to be worth speaking by itself."""

PIECE_MAX = 240
"""Longest piece; more would hold up the sound that follows."""

_JOINTS = frozenset(
    re.findall(
        r"\w+",
        "and but or so that which who when while where if because as than to of in on at for from with about "
        "into by is are was were can will would",
    )
)
"""English words before which a sentence bears a short pause better than elsewhere."""

_JOINT_FROM = 0.6
"""A piece is not cut at a joint before this share of its limit: the next one would not be ready in time."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """How long the pieces may be: sentences, but the first at most ``first`` characters long, and every
    piece at most ``growth`` times as long as the limit of the one before."""

    first: int = 60
    growth: float = 100.0

    def limits(self) -> Iterator[int]:
        """The limit of each piece in turn; endless."""
        limit = float(self.first)
        while True:
            yield min(round(limit), PIECE_MAX)
            limit = min(limit * self.growth, PIECE_MAX)


SENTENCES = Pacing()
"""For voices that sound at once, however long the text."""

GROWING = Pacing(first=30, growth=1.2)
"""For slow voices, beside a slow model. At half real time, each piece is written and ready to be heard before
the last has ended."""


def process(
    pieces: Iterable[Begin | Token | ToolCall | Finish], pacing: Pacing = SENTENCES
) -> Iterator[TextDelta | ToolCalled | TextFinished | Sentence]:
    """Yield notices for every piece of text and call, in order, and sentences for the voice."""
    voice: Voice | None = None
    thoughts = ThoughtFilter()
    pending, cutter = "", Cutter(pacing)
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
                complete, pending = cutter.cut(pending + text)
                yield from _sentences(complete, voice)
    if voice and pending.strip():
        yield from _sentences([pending], voice)


class Cutter:
    """Cuts one answer's text into pieces, as it comes."""

    def __init__(self, pacing: Pacing = SENTENCES) -> None:
        self._limits = pacing.limits()
        self._limit = next(self._limits)
        self._first = True

    def cut(self, text: str) -> tuple[list[str], str]:
        """Complete pieces at the front of ``text``, and the rest. Pieces and rest concatenate to it."""
        complete = []
        while end := self._end_of_piece(text):
            complete.append(text[:end])
            text = text[end:]
            self._limit, self._first = next(self._limits), False
        return complete, text

    def _end_of_piece(self, text: str) -> int:
        """Where the first complete piece of ``text`` ends, 0 when it is not complete yet."""
        sentence = _sentence_end(text)
        if self._first:
            clauses = (match.end() for match in _CLAUSE_END.finditer(text))
            if clause := next((end for end in clauses if FIRST_MIN <= end <= self._limit), 0):
                return min(clause, sentence or clause)
        if 0 < sentence <= self._limit:
            return sentence
        if len(text) > self._limit:
            return _best_cut(text, self._limit)
        return 0


def _best_cut(text: str, limit: int) -> int:
    """Where to cut a text that is too long: after a clause, else before a joint, else between words."""
    clauses = [match.end() for match in _CLAUSE_END.finditer(text, 0, limit)]
    if clauses and clauses[-1] >= FIRST_MIN:
        return clauses[-1]
    gaps = [at + 1 for at in range(FIRST_MIN - 1, limit) if text[at] == " "]
    joints = [gap for gap in gaps if gap >= limit * _JOINT_FROM and _whole_word(text, gap) in _JOINTS]
    return joints[-1] if joints else gaps[-1] if gaps else text.rfind(" ", 0, limit) + 1 or limit


def _whole_word(text: str, start: int) -> str:
    """The word at ``start``; "" when it may go on beyond the end of ``text``."""
    end = text.find(" ", start)
    return text[start:end].lower() if end > 0 else ""


def _sentence_end(text: str) -> int:
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[: match.end()]) and text[: match.end()].strip():
            return match.end()
    return 0


def _sentences(pieces: Iterable[str], voice: Voice) -> Iterator[Sentence]:
    for piece in pieces:
        yield Sentence(piece, speakable(piece), voice)
