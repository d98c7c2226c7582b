"""Voice activity: from a stream of sound to turns.

A turn starts with two loud chunks in a row and ends with silence, which is taken to begin where the sound
fell silent rather than where the detector noticed. At a soft end, earlier than the end,
what was said so far is sent to the recogniser on speculation; if the caller goes on, the next soft end
sends it again, longer. Where the session wants it, a model is then asked whether the caller has finished, and
the silence that ends the turn is short or long accordingly.

All times are counted in samples, so the same sound gives the same turns, however long the model thinks: sound
waits in the queue meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from units.engines.base import EngineError, TurnDetector, VoiceActivityDetector, VoiceStream
from units.messages import (
    COMMIT_MIN_MS,
    EAR_RATE,
    Await,
    Clear,
    Commit,
    Committed,
    Float32,
    Listen,
    Notice,
    Pcm,
    Recording,
    Speech,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    StayedSilent,
)
from units.observe import timed, waited
from units.scope import CancelScope

logger = logging.getLogger(__name__)

CHUNK = 512
"""Samples that the detector judges at a time: 32 ms."""

_STEADY = 2
"""Loud chunks in a row that make speech; one alone is a click."""

_HYSTERESIS = 0.15
"""Speech goes on until the probability is this much below the threshold (as silero's own iterator has it)."""

_LAG = 2 * CHUNK
"""A detector may go on hearing speech for this long after the sound has stopped."""

_FAINT = 1e-2
"""Power, relative to the loudest of the turn, below which sound is taken for silence in that lag (-20 dB)."""

_BLOCK = 128
"""Samples over which power is measured: 8 ms."""

_TAIL = EAR_RATE // 5
"""Silence left at the end of an utterance for the recogniser, in samples."""

_LIVE_EVERY = EAR_RATE
"""Speech between two live transcripts, in samples."""

_SETTLE_AFTER = 20 * EAR_RATE
_SETTLE_AT_LATEST = 28 * EAR_RATE
"""A turn this long is sent piece by piece, cut at the first dip, so that its end is transcribed quickly."""

_JUDGED = 8 * EAR_RATE
"""Sound that the model of the end of turn is given at least, if the turn has so much."""

_KEEP = 300 * EAR_RATE
"""Most sound kept for a manual commit; older sound is forgotten."""


def detect_turns(
    bodies: Iterable[Pcm | Listen | Clear | Commit | Await | Recording],
    detector: VoiceActivityDetector,
    turn_detector: TurnDetector | None = None,
) -> Iterator[Speech | Recording | Notice]:
    """Yield notices about the caller's turns, and their sound as Speech. Recordings pass."""
    ear = _Ear(detector.open(), turn_detector)
    for body in bodies:
        match body:
            case Pcm(samples):
                yield from ear.hear(samples)
            case Listen():
                ear.listen(body)
            case Clear():
                ear.clear()
            case Commit(item_id):
                yield from ear.commit(item_id)
            case Await(ms):
                ear.wait(ms)
            case Recording():
                yield body


class _Ear:
    """One caller's sound, and where in a turn it is."""

    def __init__(self, stream: VoiceStream, turn_detector: TurnDetector | None) -> None:
        self._stream = stream
        self._turn_detector = turn_detector
        self._rules = Listen()
        self._rest: Float32 = np.zeros(0, np.float32)
        self._heard = 0  # samples judged since the session began
        self._turn = 0
        self._silent: tuple[int, int] | None = None  # samples: from where, and when it is noted
        self.clear()

    def listen(self, rules: Listen) -> None:
        if rules.turn_detection != self._rules.turn_detection:
            self.clear()
        self._rules = rules

    def wait(self, ms: int) -> None:
        self._silent = (self._heard, self._heard + self._samples(ms)) if ms and not self._speaking else None

    def clear(self) -> None:
        self._stream.reset()
        self._speaking = False
        self._reset_turn()

    def _reset_turn(self) -> None:
        self._kept: list[Float32] = []  # chunks: the prefix while idle, the utterance while speaking
        self._revision = 0
        self._loud = 0  # loud chunks in a row
        self._quiet = 0  # samples of silence since the last speech
        self._loudest = 0.0  # power of the turn's loudest block
        self._paused = False
        self._finished: float | None = None  # what the model makes of the last pause
        self._fresh = 0  # samples since the last live transcript
        self._said = 0  # samples of the turn that were settled
        self._settled: Float32 = np.zeros(0, np.float32)  # the last of them
        self._superseded = CancelScope("utterance")

    def hear(self, samples: Float32) -> Iterator[Speech | Notice]:
        """Judge whatever makes whole chunks; keep the rest for next time."""
        sound = np.concatenate([self._rest, samples]) if len(self._rest) else samples
        whole = len(sound) - len(sound) % CHUNK
        for start in range(0, whole, CHUNK):
            yield from self._judge(sound[start : start + CHUNK])
        self._rest = sound[whole:].copy()
        if self._over_within_the_rest():
            yield from self._end()

    def _over_within_the_rest(self) -> bool:
        """The silence window ends within the sound that makes no whole chunk yet, and that is faint."""
        if not (self._speaking and self._paused and self._quiet and len(self._rest)):
            return False
        power = float(np.square(self._rest).mean())
        over = self._quiet + len(self._rest) >= self._window
        return over and power <= self._loudest * _FAINT

    def _judge(self, chunk: Float32) -> Iterator[Speech | Notice]:
        self._heard += CHUNK
        self._kept.append(chunk)
        if not self._rules.turn_detection:
            self._forget(_KEEP)
            return
        probability = self._stream.probability(chunk)
        floor = self._rules.threshold - (_HYSTERESIS if self._speaking else 0)
        loud = probability >= max(floor, 0.01)
        self._loud = self._loud + 1 if loud else 0
        if self._speaking:
            yield from self._follow()
        elif self._loud >= _STEADY:
            yield self._start()
        else:
            self._forget(self._prefix + _STEADY * CHUNK)
            if self._silent is not None and self._heard >= self._silent[1]:
                yield StayedSilent(_ms(self._silent[0]), _ms(self._heard))
                self._silent = None

    @property
    def _prefix(self) -> int:
        return self._rules.prefix_padding_ms * EAR_RATE // 1000

    def _start(self) -> SpeechStarted:
        self._forget(self._prefix + _STEADY * CHUNK)
        self._speaking = True
        self._silent = None
        self._turn += 1
        self._fresh = 0
        return SpeechStarted(self._turn, _ms(self._heard - self._length))

    def _follow(self) -> Iterator[Speech | Notice]:
        resumed = self._loud >= (_STEADY if self._paused else 1)
        self._loudest = max(self._loudest, float(_powers(self._kept[-1:]).max()))
        self._quiet = 0 if resumed else (self._quiet or self._silence_before()) + CHUNK
        self._fresh += CHUNK
        if not self._quiet:
            yield from self._go_on()
        elif not self._paused and self._quiet >= self._samples(self._rules.soft_end_ms):
            yield from self._pause()
        elif not self._paused and self._length >= _SETTLE_AFTER:
            yield self._settle()
        if self._quiet >= self._window:
            yield from self._end()

    @property
    def _window(self) -> int:
        """Samples of silence that end the turn, as things stand."""
        eagerness = self._rules.eagerness
        if eagerness is None or self._finished is None:
            return self._samples(self._rules.silence_ms)
        finished = self._finished >= eagerness.threshold
        return self._samples(eagerness.finished_ms if finished else eagerness.unfinished_ms)

    def _silence_before(self) -> int:
        """Samples of silence that the detector took for speech before it noticed, at most ``_LAG``."""
        powers = _powers(self._kept[-1 - _LAG // CHUNK : -1])
        audible = np.flatnonzero(powers > self._loudest * _FAINT)
        return (len(powers) - 1 - int(audible[-1] if len(audible) else -1)) * _BLOCK

    def _go_on(self) -> Iterator[Speech | Notice]:
        if self._paused:
            self._paused = False
            self._supersede()
            yield SpeechResumed(self._turn)
        if self._rules.live and self._fresh >= _LIVE_EVERY:
            self._fresh = 0
            yield self._speech("live")
        if self._length >= _SETTLE_AT_LATEST:
            yield self._settle()

    def _pause(self) -> Iterator[Speech | Notice]:
        self._paused = True
        self._revision += 1
        self._supersede()
        yield SpeechPaused(self._turn, self._revision, _ms(self._heard - self._quiet))
        yield self._speech("final")
        self._finished = self._probably_finished()

    def _probably_finished(self) -> float | None:
        """What the model says; None if it is not to be asked, or cannot tell."""
        if self._rules.eagerness is None or self._turn_detector is None:
            return None
        sound = np.concatenate([self._settled, *self._kept])
        try:
            with timed("turn") as watch:
                watch.amount = len(sound) / EAR_RATE
                return self._turn_detector.finished(sound)
        except EngineError as error:
            logger.warning("silence alone ends turn %d: %s", self._turn, error)
            return None

    def _end(self) -> Iterator[Speech | Notice]:
        if not self._paused:  # a silence window shorter than the soft end
            yield from self._pause()
        waited(self._quiet / EAR_RATE)
        yield SpeechEnded(self._turn, _ms(self._heard))
        self._speaking = False
        self._reset_turn()
        self._stream.reset()

    def _supersede(self) -> None:
        self._superseded.cancel()
        self._superseded = CancelScope("utterance")
        self._fresh = 0

    def _settle(self) -> Speech:
        piece = self._speech("settled")
        self._settled = piece.samples[-_JUDGED:]
        self._said += self._length
        self._kept.clear()
        self._superseded = CancelScope("utterance")
        return piece

    def _speech(self, purpose: str) -> Speech:
        sound = np.concatenate(self._kept) if self._kept else np.zeros(0, np.float32)
        if self._quiet > _TAIL:
            sound = sound[: len(sound) - self._quiet + _TAIL]
        scope = CancelScope("settled") if purpose == "settled" else self._superseded
        return Speech(
            self._turn,
            self._revision,
            sound,
            purpose,  # type: ignore[arg-type]
            scope,
            self._rules.language,
            self._said,
        )

    def commit(self, item_id: str) -> Iterator[Speech | Notice]:
        """Manual turn: everything since the last commit, clear or turn."""
        sound = np.concatenate([*self._kept, self._rest]) if self._kept else self._rest
        audio_ms = _ms(self._said + len(sound))
        if not self._speaking:
            self._turn += 1
        yield Committed(item_id, self._turn, self._revision + 1, audio_ms)
        if audio_ms < COMMIT_MIN_MS:
            return
        self._superseded.cancel()
        scope = CancelScope("utterance")
        revision = self._revision + 1
        yield Speech(self._turn, revision, sound, "final", scope, self._rules.language, self._said)
        self._heard += len(self._rest)
        self._rest = np.zeros(0, np.float32)
        self.clear()

    def _forget(self, keep: int) -> None:
        while self._kept and self._length - CHUNK >= keep:
            del self._kept[0]

    @property
    def _length(self) -> int:
        return len(self._kept) * CHUNK

    @staticmethod
    def _samples(ms: int) -> int:
        return ms * EAR_RATE // 1000


def _powers(chunks: list[Float32]) -> Float32:
    """Mean power of each block."""
    sound = np.concatenate(chunks) if chunks else np.zeros(_BLOCK, np.float32)
    powers: Float32 = np.square(sound).reshape(-1, _BLOCK).mean(axis=1)
    return powers


def _ms(samples: int) -> int:
    return samples * 1000 // EAR_RATE
