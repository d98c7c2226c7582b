"""Speech to text: each utterance through the engine, unless the caller has already gone on speaking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from units.engines.base import EngineError, SpeechToText
from units.messages import EAR_RATE, Speech, Transcribed, TranscriptFailed


def transcribe(
    utterances: Iterable[Speech], engine: SpeechToText
) -> Iterator[Transcribed | TranscriptFailed]:
    """Yield what was said in each utterance; the settled beginning of a long turn is put in front."""
    turn, settled = 0, ""
    for speech in utterances:
        if speech.turn != turn:
            turn, settled = speech.turn, ""
        if speech.superseded.cancelled or (speech.purpose == "live" and not engine.live):
            continue
        try:
            heard = engine.transcribe(speech.samples, language=speech.language).text.strip()
        except EngineError as error:
            if speech.purpose != "live":
                yield TranscriptFailed(turn, speech.revision, str(error))
            continue
        text = f"{settled} {heard}".strip()
        if speech.purpose == "settled":
            settled = text
        seconds = (speech.before + len(speech.samples)) / EAR_RATE
        yield Transcribed(turn, speech.revision, text, speech.purpose == "final", seconds)
