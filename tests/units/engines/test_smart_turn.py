"""The default model of the end of turn with its real weights, and the figures of docs/benchmarks.md."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from tests.speech import CLIPS, load, pink_noise, say, silence
from units.engines.base import EngineError, EngineSettings, EngineUnavailable, TextToSpeech, TurnDetector
from units.engines.registry import load as engine
from units.engines.silero import DEFAULT_MODEL, SileroVad
from units.engines.smart_turn import SmartTurn
from units.messages import EAR_RATE, Eagerness, Float32, Listen, Pcm
from units.stages.vad import detect_turns

pytestmark = pytest.mark.e2e

Fetch = Callable[[str], Path]

SENTENCES = (
    "What is the weather going to be like in Oslo tomorrow?",
    "I would like to book a table for four people on Friday evening.",
    "No, thank you.",
    "How old is the universe?",
    "I think we should leave a little earlier, because the traffic is always bad on Mondays.",
    "Remind me to call my brother at seven o'clock.",
    "Could you repeat the last part more slowly?",
    "The meeting has been moved to Thursday afternoon.",
    "What do you mean by that?",
    "I have never been to Japan, but my sister lived there for two years.",
)
BEGINNINGS = (
    "If it rains tomorrow,",
    "My phone number is four, three, two,",
    "I was wondering if, um,",
    "When I was in London,",
    "I would like to book a table for,",
    "I want to go to the, uh,",
    "We need milk, eggs, butter,",
    "So what I mean is,",
)
VOICES = ("af_heart", "am_michael", "bf_emma", "bm_george")


@pytest.fixture(scope="module")
def turn(model: Fetch) -> SmartTurn:
    model(DEFAULT_MODEL)
    model("smart-turn-v3.2")
    return SmartTurn(EngineSettings("smart-turn"))


@pytest.fixture(scope="module")
def kokoro(model: Fetch) -> TextToSpeech:
    model("kokoro-82m-int8")
    model("kokoro-voices")
    voice: TextToSpeech = engine("tts", EngineSettings("kokoro"))
    return voice


def clips() -> list[Float32]:
    return [trimmed(load(path)) for path, _ in CLIPS]


def spoken(voice: TextToSpeech, texts: tuple[str, ...]) -> list[Float32]:
    """Each by another voice, at 16 kHz."""
    made = []
    for n, text in enumerate(texts):
        sound = np.concatenate([*voice.synthesize(text, voice=VOICES[n % len(VOICES)])])
        size = len(sound) * EAR_RATE // voice.sample_rate
        spectrum = np.fft.rfft(sound)[: size // 2 + 1]
        made.append(trimmed((np.fft.irfft(spectrum, size) * size / len(sound)).astype(np.float32)))
    return made


def trimmed(samples: Float32) -> Float32:
    """Without the silence at both ends."""
    loud = np.flatnonzero(np.abs(samples) > 0.003)
    return samples[loud[0] : loud[-1] + 1]


def broken_off(sentences: list[Float32]) -> list[Float32]:
    """Four beginnings of every sentence of two seconds, each up to a place where the voice is quiet."""
    return [
        sentence[: quietest(sentence, int(part * len(sentence)))]
        for sentence in sentences
        if len(sentence) > 2 * EAR_RATE
        for part in (0.35, 0.5, 0.65, 0.8)
    ]


def quietest(samples: Float32, near: int) -> int:
    """Middle of the quietest 20 ms within 0.1 s of ``near``."""
    middles = range(near - EAR_RATE // 10, near + EAR_RATE // 10, 80)
    return min(middles, key=lambda n: float(np.square(samples[n - 160 : n + 160]).sum()))


class Noting:
    """Passes on what it is asked, and notes the answers and how long they took."""

    def __init__(self, model: TurnDetector) -> None:
        self.model = model
        self.answers: list[float] = []
        self.took: list[float] = []

    def finished(self, samples: Float32) -> float:
        began = time.perf_counter()
        self.answers.append(self.model.finished(samples))
        self.took.append(time.perf_counter() - began)
        return self.answers[-1]


def verdicts(turn: SmartTurn, sounds: list[Float32], noise_dbfs: float | None = None) -> list[float]:
    """What the voice activity stage is told at the last pause of each sound, a second of silence after it."""
    found = []
    for sound in sounds:
        heard = np.concatenate([silence(0.5), sound, silence(1)])
        if noise_dbfs is not None:
            heard += pink_noise(len(heard) / EAR_RATE + 0.01, noise_dbfs)[: len(heard)]
        model = Noting(turn)
        listen = Listen(soft_end_ms=96, eagerness=Eagerness(0.5, 300, 4000), live=False)
        list(detect_turns([listen, Pcm(heard)], SileroVad(EngineSettings("silero")), model))
        found += model.answers[-1:]
    return found


def test_who_has_finished_and_who_has_not(
    turn: SmartTurn, kokoro: TextToSpeech, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(CLIPS) == 5
    sentences = spoken(kokoro, SENTENCES)
    found = {
        "LibriVox": verdicts(turn, clips()),
        "LibriVox, noise at -60 dB": verdicts(turn, clips(), -60),
        "LibriVox, broken off": verdicts(turn, broken_off(clips())),
        "LibriVox, broken off, noise at -60 dB": verdicts(turn, broken_off(clips()), -60),
        "Kokoro": verdicts(turn, sentences),
        "Kokoro, broken off": verdicts(turn, broken_off(sentences)),
        "Kokoro, beginnings": verdicts(turn, spoken(kokoro, BEGINNINGS)),
        "espeak-ng": verdicts(turn, [say(text, tmp_path) for text in SENTENCES]),
    }
    with capsys.disabled():
        for name, answers in found.items():
            counts = [sum(each >= limit for each in answers) for limit in (0.3, 0.5, 0.7)]
            print(f"\n{name}: of {len(answers)}, above 0.3, 0.5, 0.7: {counts}", end="")  # noqa: T201
    share = {name: np.mean(np.array(answers) >= 0.5) for name, answers in found.items()}
    assert share["LibriVox"] >= 0.6  # in the book, two of the five go on after a comma or a semicolon
    assert share["LibriVox, broken off"] <= 0.4
    assert share["Kokoro"] >= 0.7
    assert share["Kokoro, beginnings"] <= 0.6


def test_the_answer_takes_a_fraction_of_a_second(turn: SmartTurn, capsys: pytest.CaptureFixture[str]) -> None:
    model = Noting(turn)
    for clip in clips() * 4:
        model.finished(clip)
    median_ms, longest_ms = 1000 * np.median(model.took), 1000 * max(model.took)
    with capsys.disabled():
        print(f"\nasking: median {median_ms:.0f} ms, longest {longest_ms:.0f} ms", end="")  # noqa: T201
    assert np.median(model.took) < 0.5


def test_it_is_a_turn_detector_for_sound_of_any_length(turn: SmartTurn) -> None:
    assert isinstance(turn, TurnDetector)
    for seconds in (0, 0.1, 8, 30):
        assert 0 <= turn.finished(silence(seconds)) <= 1


def test_the_features_are_those_of_whisper(turn: SmartTurn) -> None:
    reference = WhisperFeatureExtractor(chunk_length=8)
    sound = clips()[0]
    padded = np.pad(sound, (8 * EAR_RATE - len(sound), 0))
    expected = reference(padded, sampling_rate=EAR_RATE, do_normalize=True, return_tensors="np")
    assert np.abs(turn._features(sound) - expected.input_features).max() < 1e-4


def test_only_the_last_eight_seconds_count_and_loudness_does_not(turn: SmartTurn) -> None:
    sound = np.concatenate([clips()[0], silence(0.3), clips()[3]])
    assert turn.finished(sound) == turn.finished(sound[-8 * EAR_RATE :])
    assert turn.finished(sound / 4) == pytest.approx(turn.finished(sound), abs=0.01)


def test_callers_at_once_get_their_own_answers(turn: SmartTurn) -> None:
    alone = [turn.finished(clip) for clip in clips()]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(turn.finished, clips())) == alone


def test_a_model_that_is_not_in_the_store_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"duologue models fetch smart-turn-v3\.2"):
        SmartTurn(EngineSettings("smart-turn", models_dir=tmp_path))


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "noise.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(EngineUnavailable, match=r"noise\.onnx.*Smart Turn"):
        SmartTurn(EngineSettings("smart-turn", model=str(path)))


def test_a_model_of_something_else_fails_when_it_is_asked(model: Fetch) -> None:
    other = SmartTurn(EngineSettings("smart-turn", model=str(model(DEFAULT_MODEL))))
    with pytest.raises(EngineError, match="end of turn failed"):
        other.finished(silence(1))
