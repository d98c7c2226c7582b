"""The output queue: speech waiting to be heard, and how much of it has been.

The session writes, the outbound track pulls 20 ms at a time, both on the event loop thread. Every
write says whose speech it is (a tag) and which text it speaks, so that a flush can say what was heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from units.messages import Audio, Int16

CHARACTER_SECONDS = 0.06
"""How long a voice takes for a character, to tell how much of an unfinished sentence was heard."""


@dataclass(frozen=True, slots=True)
class Heard:
    """How far the speech of one tag got."""

    tag: str
    audio_ms: int
    """What left the queue, in milliseconds."""
    text: str
    """The words that it spoke, cut at a word boundary."""


@dataclass(slots=True)
class _Passage:
    """A sentence in the queue: ``text`` takes ``total`` samples so far, of which ``heard`` were pulled."""

    text: str
    total: int = 0
    heard: int = 0

    def heard_text(self, expected: int = 0) -> str:
        """``expected``: the samples that the sentence will take when not all of them are here yet."""
        total = max(self.total, expected)
        if self.heard >= total:
            return self.text
        return words_within(self.text, self.heard / total)


def words_within(text: str, share: float) -> str:
    """The whole words in the first ``share`` of ``text``."""
    cut = int(len(text) * share)
    boundary = text.rfind(" ", 0, cut + 1) if cut > 0 else 0
    return text[:boundary] if boundary > 0 else ""


@dataclass(slots=True)
class _Speech:
    """All that one tag has to say."""

    tag: str
    chunks: deque[tuple[Int16, _Passage]] = field(default_factory=deque)
    passages: list[_Passage] = field(default_factory=list)
    pulled: int = 0
    closed: bool = False

    def heard(self, rate: int) -> Heard:
        *complete, last = self.passages
        text = "".join(passage.heard_text() for passage in complete if passage.heard)
        if last.heard:
            text += last.heard_text(0 if self.closed else int(len(last.text) * rate * CHARACTER_SECONDS))
        return Heard(self.tag, self.pulled * 1000 // rate, text)


class AssumedPlayout:
    """How much has been played by a client that plays the sound itself, if it does so at once.

    Pure: ``now`` is any clock, in seconds.
    """

    def __init__(self) -> None:
        self._began: dict[str, float] = {}  # by item id
        self._until = 0.0

    def queued(self, item_id: str, seconds: float, now: float) -> None:
        """It is sent so much more sound."""
        start = max(now, self._until)
        self._began.setdefault(item_id, start)
        self._until = start + seconds

    def stop(self, now: float) -> bool:
        """It plays nothing of what it has; whether there was something."""
        playing = now < self._until
        self._until = min(self._until, now)
        return playing

    def heard(self, now: float) -> dict[str, float]:
        """Seconds that have passed of each item, which may be more than it has."""
        return {item_id: max(0.0, now - began) for item_id, began in self._began.items()}


class Playout:
    """A queue of int16 mono speech at ``sample_rate`` Hz: one tag after the other, in the order in which
    they were first written; what one tag says is never cut in two by another.

    ``on_started(tag)`` is called when the first sample of a tag is pulled, ``on_stopped(heard)`` when
    its last one was and nothing more will come. Neither is called for speech that is flushed.
    ``on_pulled(frame)`` gets all that is pulled, also silence; None: nobody is interested.
    """

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self.on_started: Callable[[str], None] = _ignore
        self.on_stopped: Callable[[Heard], None] = _ignore
        self.on_pulled: Callable[[Int16], None] | None = None
        self._queue: deque[_Speech] = deque()

    @property
    def playing(self) -> bool:
        """Something is being said or waits to be said."""
        return bool(self._queue)

    @property
    def waiting(self) -> int:
        """Samples that wait to be heard."""
        return sum(len(chunk) for speech in self._queue for chunk, _ in speech.chunks)

    def write(self, tag: str, audio: Audio) -> None:
        """Append speech. Raises ValueError when its rate is not this queue's."""
        if audio.rate != self.sample_rate:
            raise ValueError(f"audio at {audio.rate} Hz in a playout at {self.sample_rate} Hz")
        speech = self._speech(tag)
        if audio.text or not speech.passages:
            speech.passages.append(_Passage(audio.text))
        if len(audio.samples):
            passage = speech.passages[-1]
            passage.total += len(audio.samples)
            speech.chunks.append((audio.samples, passage))

    def finish(self, tag: str) -> None:
        """No more speech will be written for ``tag``."""
        for speech in self._queue:
            if speech.tag == tag:
                speech.closed = True
        self._retire()

    def pull(self, n: int) -> Int16 | None:
        """The next ``n`` samples, or None when there is nothing to say. A short tail is padded with zeros."""
        frame = self._next(n)
        if self.on_pulled is not None:
            self.on_pulled(np.zeros(n, np.int16) if frame is None else frame)
        return frame

    def _next(self, n: int) -> Int16 | None:
        if not self._queue or not any(speech.chunks for speech in self._queue):
            return None
        frame = np.zeros(n, np.int16)
        filled = 0
        while filled < n and self._queue and self._queue[0].chunks:
            filled += self._move(self._queue[0], frame[filled:])
            self._retire()
        return frame if filled else None

    def flush(self) -> list[Heard]:
        """Forget what was not heard yet; what was heard of each tag that was in the queue, in order."""
        heard = [speech.heard(self.sample_rate) for speech in self._queue]
        self._queue.clear()
        return heard

    def _speech(self, tag: str) -> _Speech:
        for speech in self._queue:
            if speech.tag == tag:
                return speech
        self._queue.append(_Speech(tag))
        return self._queue[-1]

    def _move(self, speech: _Speech, into: Int16) -> int:
        chunk, passage = speech.chunks.popleft()
        taken = min(len(chunk), len(into))
        into[:taken] = chunk[:taken]
        if taken < len(chunk):
            speech.chunks.appendleft((chunk[taken:], passage))
        first = speech.pulled == 0
        speech.pulled += taken
        passage.heard += taken
        if first:
            self.on_started(speech.tag)
        return taken

    def _retire(self) -> None:
        while self._queue and self._queue[0].closed and not self._queue[0].chunks:
            done = self._queue.popleft()
            self.on_stopped(done.heard(self.sample_rate))


def _ignore(_: object) -> None:
    pass
