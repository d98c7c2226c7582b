from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from units.messages import Float32, Sentence, Voice
from units.stages.tts import speak

VOICE = Voice("ada", 1.25)


class Chunky:
    """Two chunks for each text."""

    sample_rate = 22_050
    voices: tuple[str, ...] = ("ada",)

    def __init__(self, *chunks: list[float]) -> None:
        self.chunks = chunks
        self.asked: list[tuple[str, str, float]] = []

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        self.asked.append((text, voice, speed))
        yield from (np.array(chunk, np.float32) for chunk in self.chunks)


def test_the_first_chunk_says_which_text_it_speaks() -> None:
    engine = Chunky([0.1], [0.2])
    chunks = [*speak([Sentence("**Hi.** ", "Hi.", VOICE)], engine)]
    assert [(chunk.text, chunk.rate, len(chunk.samples)) for chunk in chunks] == [
        ("**Hi.** ", 22_050, 1),
        ("", 22_050, 1),
    ]
    assert engine.asked == [("Hi.", "ada", 1.25)]


def test_sound_becomes_int16_and_is_clipped() -> None:
    chunk, *_ = speak([Sentence("Hi", "Hi", VOICE)], Chunky([0.0, 0.5, 1.0, 2.0, -2.0]))
    assert chunk.samples.dtype == np.int16
    assert chunk.samples.tolist() == [0, 16383, 32767, 32767, -32767]


def test_a_sentence_with_nothing_to_pronounce_keeps_its_text() -> None:
    engine = Chunky([0.1])
    chunks = [*speak([Sentence("🙂 ", " ", VOICE)], engine)]
    assert [(chunk.text, len(chunk.samples)) for chunk in chunks] == [("🙂 ", 0)]
    assert engine.asked == []


def test_a_sentence_that_the_engine_cannot_say_keeps_its_text() -> None:
    chunks = [*speak([Sentence("Hm", "Hm", VOICE)], Chunky())]
    assert [(chunk.text, len(chunk.samples)) for chunk in chunks] == [("Hm", 0)]
