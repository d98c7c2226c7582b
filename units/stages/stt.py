"""Speech to text: each utterance through the engine, unless the caller has already gone on speaking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from units.engines.base import EngineError, SpeechToText
from units.messages import EAR_RATE, Float32, Recording, RecordingHeard, Speech, Transcribed, TranscriptFailed
from units.observe import timed
from units.resample import EarResampler

_REST = 3.0
"""After a live pass no other is made of the next sound, this many times as long as the pass took: a final
pass would have to wait for it."""


def transcribe(
    utterances: Iterable[Speech | Recording],
    engine: SpeechToText,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Transcribed | TranscriptFailed | RecordingHeard]:
    """Yield what was said in each utterance; the settled beginning of a long turn is put in front.

    ``clock`` gives seconds; it only says how long a live pass took.
    """
    turn, settled, rested = 0, "", 0.0
    for speech in utterances:
        if isinstance(speech, Recording):
            yield _heard(speech, engine)
            continue
        if speech.turn != turn:
            turn, settled, rested = speech.turn, "", 0.0
        live = speech.purpose == "live"
        seconds = (speech.before + len(speech.samples)) / EAR_RATE
        if speech.superseded.cancelled or (live and (not engine.live or seconds < rested)):
            continue
        began = clock()
        try:
            heard = _words(engine, speech.samples, speech.language, speech.purpose)
        except EngineError as error:
            if not live:
                yield TranscriptFailed(turn, speech.revision, str(error))
            continue
        text = f"{settled} {heard}".strip()
        if live:
            rested = seconds + _REST * (clock() - began)
        if speech.purpose == "settled":
            settled = text
        yield Transcribed(turn, speech.revision, text, speech.purpose == "final", seconds)


def _heard(recording: Recording, engine: SpeechToText) -> RecordingHeard:
    seconds = len(recording.samples) / recording.rate
    samples = EarResampler(recording.rate).convert(recording.samples)
    try:
        text = _words(engine, samples, recording.language, "recording")
    except EngineError as error:
        return RecordingHeard(recording.number, "", seconds, str(error))
    return RecordingHeard(recording.number, text, seconds)


def _words(engine: SpeechToText, samples: Float32, language: str, purpose: str) -> str:
    with timed("stt", purpose) as watch:
        watch.amount = len(samples) / EAR_RATE
        text = engine.transcribe(samples, language=language).text.strip()
        watch.got()
        return text
