"""Kokoro on its real weights, heard again by Whisper."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.units.engines.hearing import heard, word_errors
from units.engines.base import EngineSettings, TextToSpeech
from units.engines.kokoro import Kokoro, _Torch
from units.engines.phonemes import phonemes
from units.messages import Float32
from units.models import ModelStore
from units.scope import CancelScope, entered
from units.speakable import speakable

pytestmark = pytest.mark.e2e

SENTENCES = [
    "I can help you with that right away.",
    "The meeting moved to Thursday, March 5th, at 3:15 in the afternoon.",
    "It costs $3.50, which is 10% less than the $82 we paid in 1999.",
    "Please turn left at the next corner and walk for 200 meters.",
    "Would you like me to book a table for four people on Friday evening?",
]
NUMBERS = [
    ("$3.567", "3.567"),
    ("192.168.0.1", "192.168.0.1"),
    ("20 kg", "20 kilograms"),
    ("5 < 10", "5 is less than 10"),
    ("2026-03-01", "March 1"),
]


@pytest.fixture(scope="module")
def kokoro() -> Kokoro:
    return Kokoro(EngineSettings("kokoro", device="cpu"))


def spoken(engine: Kokoro, text: str, voice: str = "", speed: float = 1.0) -> Float32:
    chunks = list(engine.synthesize(text, voice=voice, speed=speed))
    return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


def test_it_is_a_text_to_speech_engine(kokoro: Kokoro) -> None:
    assert isinstance(kokoro, TextToSpeech)
    assert len(kokoro.voices) == 28


@pytest.mark.parametrize("voice", ["af_heart", "bm_george"])
def test_at_most_one_word_in_ten_is_lost(kokoro: Kokoro, voice: str) -> None:
    wrong = total = 0
    for sentence in SENTENCES:
        said = spoken(kokoro, speakable(sentence), voice)
        errors, words = word_errors(sentence, heard(said, kokoro.sample_rate))
        wrong, total = wrong + errors, total + words
    assert wrong / total <= 0.10


@pytest.mark.parametrize(("written", "found"), NUMBERS)
def test_numbers_are_found_again(kokoro: Kokoro, written: str, found: str) -> None:
    said = spoken(kokoro, speakable(f"The answer is {written}, I think."))
    text = heard(said, kokoro.sample_rate).lower().replace("zero", "0")
    assert found.lower() in text.replace("kg", "kilograms") or found.replace("is less", "less") in text


@pytest.mark.parametrize("text", ["", "...", "**", "😀", "你好，世界。", "\n"])
def test_what_cannot_be_said_is_silence(kokoro: Kokoro, text: str) -> None:
    assert len(spoken(kokoro, text)) == 0


def test_an_unknown_voice_is_the_default_one(kokoro: Kokoro) -> None:
    assert len(spoken(kokoro, "Yes.", "parrot")) == len(spoken(kokoro, "Yes."))
    assert len(spoken(kokoro, "Yes.", "alloy")) == len(spoken(kokoro, "Yes.", "af_alloy"))


def test_faster_speech_is_shorter(kokoro: Kokoro) -> None:
    text = "This takes a little while to say."
    assert len(spoken(kokoro, text, speed=1.5)) < 0.8 * len(spoken(kokoro, text))


def test_a_very_long_sentence_is_spoken_to_its_end(kokoro: Kokoro) -> None:
    words = ["apples", "pears", "plums", "grapes", "melons", "figs"]
    text = "We have " + " and ".join(words[n % 6] for n in range(60)) + " and finally oranges"
    chunks = list(kokoro.synthesize(text, speed=1.5))
    assert len(chunks) > 1
    assert "oranges" in heard(chunks[-1], kokoro.sample_rate).lower()
    seconds = 1.5 * sum(map(len, chunks)) / kokoro.sample_rate
    assert 120 / 6 < seconds < 120 / 1.5


def test_a_long_sentence_is_heard_before_all_of_it_is_made(kokoro: Kokoro) -> None:
    first, *others = kokoro.synthesize(SENTENCES[1])
    assert len(others) >= 2
    assert 0.4 < len(first) / kokoro.sample_rate < 1.2


def test_stretches_are_as_loud_as_the_whole_and_do_not_click(
    kokoro: Kokoro, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbols = phonemes(SENTENCES[4])[0]
    ids = [kokoro._model.vocabulary[symbol] for symbol in symbols]
    style = np.asarray(kokoro._styles["af_heart"][len(ids) - 1], np.float32)[None]
    stretched = [part.sound for part in kokoro._model.run(ids, style, 1.0, quiet_end=1)]
    monkeypatch.setattr("units.engines.kokoro_onnx.FIRST", 1000)
    [(whole, _, _)] = kokoro._model.run(ids, style, 1.0, quiet_end=1)
    together = np.concatenate(stretched)
    assert len(stretched) >= 3
    assert len(together) == len(whole)
    ends = [0, *np.cumsum([len(stretch) for stretch in stretched])]
    for start, end in pairwise(ends):
        here, there = np.square(together[start:end]).mean(), np.square(whole[start:end]).mean()
        assert abs(10 * np.log10(here / there)) < 5.0
    steps = np.abs(np.diff(together))
    for end in ends[1:-1]:
        assert steps[end - 5 : end + 5].max() <= steps.max() / 2


def test_a_cancelled_response_is_not_synthesised_further(kokoro: Kokoro) -> None:
    scope = CancelScope("response")
    with entered(scope):
        stream = kokoro.synthesize("One and two, " * 20)
        next(stream)
        scope.cancel()
        assert list(stream) == []


def test_many_callers_at_once_get_their_own_words_and_memory_stays(kokoro: Kokoro) -> None:
    texts = [f"Number {n}." for n in range(6)]
    alone = {text: len(spoken(kokoro, text)) for text in texts}
    threads, memory = threading.active_count(), psutil.Process().memory_info().rss
    with ThreadPoolExecutor(6) as pool:
        together = dict(
            zip(texts, (len(sound) for sound in pool.map(lambda t: spoken(kokoro, t), texts)), strict=True)
        )
    assert together == alone
    assert threading.active_count() <= threads
    assert psutil.Process().memory_info().rss < 1.1 * memory


def test_the_torch_model_loads_from_local_files_and_speaks(tmp_path: Path) -> None:
    """With few and random weights, since only CUDA users fetch the real ones: loading and shapes count."""
    torch = pytest.importorskip("torch")
    kokoro = pytest.importorskip("kokoro")
    config = json.loads((ModelStore().path("kokoro-82m-int8") / "config.json").read_text())
    config["max_dur"] = 4  # at random a symbol lasts half of it
    config["plbert"]["num_hidden_layers"] = 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = tmp_path / "kokoro-v1_0.pth"
    torch.save({}, checkpoint)
    random = kokoro.KModel(
        repo_id="hexgrad/Kokoro-82M", config=str(tmp_path / "config.json"), model=str(checkpoint)
    )
    torch.save({name: part.state_dict() for name, part in random.named_children()}, checkpoint)
    model = _Torch(tmp_path, "cpu")
    ids = [model.vocabulary["ˈ"], model.vocabulary["A"]]
    [(sound, first, last)] = model.run(ids, np.zeros((1, 256), np.float32), 1.0, 0)
    assert first
    assert last
    assert sound.dtype == np.float32
    assert sound.ndim == 1
    assert len(sound) > 0
