"""The default recogniser with its real weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import ctranslate2
import numpy as np
import pytest

from tests.speech import CLIPS, clicks, hum, load, pink_noise, say, silence
from tests.wer import normalise, word_errors
from units.engines.base import EngineSettings, EngineUnavailable, SpeechToText
from units.engines.faster_whisper import FasterWhisper
from units.messages import Float32

pytestmark = pytest.mark.e2e

Fetch = Callable[[str], Path]


@pytest.fixture(scope="module")
def stt(model: Fetch) -> FasterWhisper:
    return FasterWhisper(EngineSettings("faster-whisper", model=str(model("whisper-base"))))


@pytest.fixture(scope="module")
def english(model: Fetch) -> FasterWhisper:
    model("whisper-tiny.en")
    return FasterWhisper(EngineSettings("faster-whisper", model="whisper-tiny.en", language="de"))


@pytest.fixture(params=["stt", "english"])
def either(request: pytest.FixtureRequest) -> FasterWhisper:
    engine: FasterWhisper = request.getfixturevalue(request.param)
    return engine


def all_clips(gap_s: float) -> tuple[Float32, str]:
    pieces = [part for path, _ in CLIPS for part in (load(path), silence(gap_s))]
    return np.concatenate(pieces), " ".join(words for _, words in CLIPS)


def test_it_is_a_recogniser_quick_enough_for_live_transcripts(stt: FasterWhisper) -> None:
    assert isinstance(stt, SpeechToText)
    assert stt.live


def test_one_word_in_twenty_may_be_wrong(stt: FasterWhisper, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(CLIPS) == 5
    wrong = said = 0
    for path, words in CLIPS:
        samples = load(path)
        start = time.perf_counter()
        heard = stt.transcribe(samples)
        took = time.perf_counter() - start
        with capsys.disabled():
            print(f"\n{path.stem[-4:]}: {samples.size / 16_000:.1f} s in {took:.2f} s", end="")  # noqa: T201
        assert heard.language == "en"
        wrong += word_errors(normalise(words), normalise(heard.text))
        said += len(normalise(words))
    assert wrong / said <= 0.05


@pytest.mark.parametrize(
    "sound",
    [
        silence(5),
        np.zeros(0, np.float32),
        pink_noise(5, -50),
        pink_noise(5, -30),
        pink_noise(0.4, -30),
        pink_noise(29, -30),
        hum(5),
        hum(30),
        clicks(5),
        clicks(0.8),
    ],
    ids=["silence", "empty", "soft", "noise", "0.4 s", "29 s", "hum", "long hum", "keys", "a key"],
)
def test_nobody_speaks_in_noise(either: FasterWhisper, sound: Float32) -> None:
    assert either.transcribe(sound).text == ""


@pytest.mark.parametrize("words", ["thank you", "thanks for watching", "yes", "stop", "okay", "hello"])
@pytest.mark.parametrize("speed", [150, 260])
def test_a_few_words_that_were_said_survive(
    either: FasterWhisper, words: str, speed: int, tmp_path: Path
) -> None:
    spoken = say(words, tmp_path, speed=speed)
    for around in (silence(0), silence(0.3), pink_noise(0.3, -60)):
        heard = either.transcribe(np.concatenate([around, spoken, around])).text
        assert normalise(heard) == words.split()


def test_a_word_of_200_ms_is_heard(stt: FasterWhisper, tmp_path: Path) -> None:
    spoken = say("no", tmp_path, speed=260)
    assert spoken.size < 0.2 * 16_000
    assert normalise(stt.transcribe(spoken).text) == ["no"]


def test_silence_after_a_sentence_adds_no_words(either: FasterWhisper) -> None:
    path, words = CLIPS[4]
    sentence = np.concatenate([load(path), pink_noise(3, -60)])
    assert normalise(either.transcribe(sentence).text) == words.split()


@pytest.mark.parametrize("gap_s", [0.4, 0.0], ids=["with pauses", "without"])
def test_a_monologue_keeps_all_its_words(stt: FasterWhisper, gap_s: float) -> None:
    samples, words = all_clips(gap_s)
    twice, expected = np.concatenate([samples, samples]), normalise(f"{words} {words}")
    assert word_errors(expected, normalise(stt.transcribe(twice).text)) <= 0.05 * len(expected)


def test_a_loop_is_sent_through_the_full_window(stt: FasterWhisper, monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[float] = []
    encode = stt._encode

    def watched(samples: Float32, window_s: float) -> ctranslate2.StorageView:
        windows.append(window_s)
        return encode(samples, window_s)

    monkeypatch.setattr(stt, "_encode", watched)
    path, words = CLIPS[1]
    monkeypatch.setattr("units.engines.whisper_guard.may_loop", lambda tokens, cap: True)
    assert normalise(stt.transcribe(load(path)).text) == words.split()
    assert windows == [10.0, 30.0]


def test_detecting_the_language_costs_no_second_encoding(
    stt: FasterWhisper, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = stt._model.encode

    def counted(features: Float32) -> ctranslate2.StorageView:
        encoded.append(features.shape[-1])
        return encode(features)

    monkeypatch.setattr(stt._model, "encode", counted)
    assert stt.transcribe(load(CLIPS[4][0])).language == "en"
    assert encoded == [1000]


def test_a_language_that_was_given_is_not_guessed(stt: FasterWhisper) -> None:
    assert stt.transcribe(load(CLIPS[4][0]), language="de-AT").language == "de"


def test_an_unknown_language_is_detected_instead(stt: FasterWhisper) -> None:
    assert stt.transcribe(load(CLIPS[4][0]), language="tlh").language == "en"


def test_an_english_model_ignores_the_language(english: FasterWhisper) -> None:
    heard = english.transcribe(load(CLIPS[4][0]), language="fr")
    assert (heard.language, normalise(heard.text)) == ("en", CLIPS[4][1].split())


def test_callers_at_once_get_their_own_words(stt: FasterWhisper) -> None:
    clips = [load(path) for path, _ in CLIPS]
    alone = [stt.transcribe(clip) for clip in clips]
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(stt.transcribe, clips)) == alone


def test_a_model_that_is_not_in_the_store_says_how_to_get_it(tmp_path: Path) -> None:
    settings = EngineSettings("faster-whisper", models_dir=tmp_path)
    with pytest.raises(EngineUnavailable, match="duologue models fetch whisper-base"):
        FasterWhisper(settings)


@pytest.mark.parametrize("name", ["no-such-size", "owner/no-such-model"])
def test_a_model_that_cannot_be_had_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EngineUnavailable, match=name):
        FasterWhisper(EngineSettings("faster-whisper", model=name))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="CTranslate2"):
        FasterWhisper(EngineSettings("faster-whisper", model=str(tmp_path)))


def test_a_language_that_nobody_speaks_is_refused_at_the_start(model: Fetch) -> None:
    settings = EngineSettings("faster-whisper", model=str(model("whisper-base")), language="klingon")
    with pytest.raises(EngineUnavailable, match="klingon"):
        FasterWhisper(settings)


@pytest.mark.skipif(ctranslate2.get_cuda_device_count() > 0, reason="there is a CUDA device")
def test_a_gpu_that_is_not_there_is_named(model: Fetch) -> None:
    settings = EngineSettings("faster-whisper", model=str(model("whisper-base")), device="cuda")
    with pytest.raises(EngineUnavailable, match="CUDA"):
        FasterWhisper(settings)


@pytest.mark.skipif(ctranslate2.get_cuda_device_count() > 0, reason="there is a CUDA device")
def test_a_gpu_that_cannot_be_used_is_done_without_unless_it_was_asked_for(
    model: Fetch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = EngineSettings("faster-whisper", model=str(model("whisper-base")))
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    assert FasterWhisper(settings).transcribe(load(CLIPS[0][0])).text
    assert "CUDA cannot be used" in caplog.text
    with pytest.raises(EngineUnavailable, match=r"duologue\[cuda\]"):
        FasterWhisper(replace(settings, device="cuda"))
