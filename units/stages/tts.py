"""Text to speech: sentences in, sound out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from units.engines.base import TextToSpeech
from units.messages import Audio, Float32, Int16, Sentence
from units.observe import timed


def speak(sentences: Iterable[Sentence], engine: TextToSpeech) -> Iterator[Audio]:
    """Yield each sentence's sound as it is made; its first chunk says which text it speaks.

    A sentence with nothing to pronounce yields one empty chunk, so that its text still counts.
    """
    for sentence in sentences:
        text = sentence.text
        for chunk in _sound(sentence, engine):
            yield Audio(_int16(chunk), engine.sample_rate, text)
            text = ""
        if text:
            yield Audio(np.zeros(0, np.int16), engine.sample_rate, text)


def _sound(sentence: Sentence, engine: TextToSpeech) -> Iterator[Float32]:
    if not sentence.spoken.strip():
        return
    with timed("tts") as watch:
        for chunk in engine.synthesize(
            sentence.spoken, voice=sentence.voice.name, speed=sentence.voice.speed
        ):
            watch.got()
            watch.amount += len(chunk) / engine.sample_rate
            yield chunk


def _int16(samples: Float32) -> Int16:
    scaled = np.clip(samples, -1.0, 1.0) * 32767.0
    return scaled.astype(np.int16)
