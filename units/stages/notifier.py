"""Transcription notifier: from what the recogniser makes of a turn, again and again, to what clients see.

A live transcript must not take words back. Words are announced once two hypotheses in a row agree on
them (local agreement, Macháček et al. 2023, https://arxiv.org/abs/2307.14743).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from units.messages import Transcribed, TranscriptDelta, TranscriptFailed, TranscriptFinal, TranscriptGuess


def notify(
    hypotheses: Iterable[Transcribed],
) -> Iterator[TranscriptDelta | TranscriptGuess | TranscriptFinal | TranscriptFailed]:
    """Yield appending deltas and, for each final hypothesis, the whole transcript.

    The deltas of a turn are a prefix of its transcript unless the recogniser changed its mind about
    words already announced; the transcript is what counts.
    """
    turn, announced, previous = 0, "", ""
    for hypothesis in hypotheses:
        if hypothesis.turn != turn:
            turn, announced, previous = hypothesis.turn, "", ""
        agreed = hypothesis.text if hypothesis.final else _agreed(previous, hypothesis.text)
        previous = hypothesis.text
        # A final hypothesis may yet be superseded: its last words are announced with the transcript.
        if not hypothesis.final and len(agreed) > len(announced) and agreed.startswith(announced):
            yield TranscriptDelta(turn, agreed[len(announced) :])
            announced = agreed
        if not hypothesis.final:
            yield TranscriptGuess(turn, hypothesis.text)
        else:
            yield TranscriptFinal(turn, hypothesis.revision, hypothesis.text, hypothesis.seconds)


def _agreed(before: str, now: str) -> str:
    """The words that both begin with, spelt as in ``now``, with the space after them left out."""
    end = position = 0
    for old, new in zip(before.split(), now.split(), strict=False):
        if _bare(old) != _bare(new):
            break
        position = now.index(new, position) + len(new)
        end = position
    return now[:end]


def _bare(word: str) -> str:
    return word.strip(".,!?;:…\"'").casefold()
