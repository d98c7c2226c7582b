"""Silero on real speech, on noise, and from several threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.speech import CLIPS, at_peak, clicks, hum, load, pink_noise, silence
from units.engines.base import EngineSettings, EngineUnavailable, VoiceActivityDetector, VoiceStream
from units.engines.silero import CHUNK, DEFAULT_MODEL, SileroVad
from units.messages import Float32


@pytest.fixture(scope="module")
def vad(model: Callable[[str], Path]) -> SileroVad:
    return SileroVad(EngineSettings("silero", model=str(model(DEFAULT_MODEL))))


def chunks(samples: Float32) -> list[Float32]:
    return [samples[i : i + CHUNK] for i in range(0, samples.size - CHUNK + 1, CHUNK)]


def probabilities(stream: VoiceStream, samples: Float32) -> list[float]:
    return [stream.probability(chunk) for chunk in chunks(samples)]


def test_it_is_a_voice_activity_detector(vad: SileroVad) -> None:
    assert isinstance(vad, VoiceActivityDetector)


@pytest.mark.parametrize("dbfs", [-6, -18, -30])
def test_speech_is_heard_loud_or_soft(vad: SileroVad, dbfs: float) -> None:
    assert len(CLIPS) == 5
    heard: list[bool] = []
    for path, _ in CLIPS:
        samples = at_peak(load(path), dbfs)
        loudness = np.array([np.sqrt((chunk**2).mean()) for chunk in chunks(samples)])
        found = np.array(probabilities(vad.open(), samples)) > 0.5
        heard += list(found[loudness > loudness.max() / 10])
    assert np.mean(heard) >= 0.9


@pytest.mark.parametrize(
    "sound",
    [silence(5), pink_noise(5, -50), pink_noise(5, -30), hum(5), clicks(5)],
    ids=["silence", "soft noise", "noise", "hum", "clicks"],
)
def test_what_is_not_speech_is_not_taken_for_it(vad: SileroVad, sound: Float32) -> None:
    assert np.mean(np.array(probabilities(vad.open(), sound)) > 0.5) <= 0.01


def test_streams_share_nothing_but_weights(vad: SileroVad) -> None:
    clips = [load(path) for path, _ in CLIPS[:3]]
    alone = [probabilities(vad.open(), clip) for clip in clips]
    streams = [vad.open() for _ in clips]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(probabilities, streams, clips))
    assert together == alone


def test_reset_forgets_what_was_heard(vad: SileroVad) -> None:
    speech = load(CLIPS[0][0])
    stream = vad.open()
    fresh = probabilities(stream, speech)
    stream.reset()
    assert probabilities(stream, speech) == fresh


@pytest.mark.parametrize(
    "chunk",
    [np.zeros(511, np.float32), np.zeros((1, 512), np.float32), np.zeros(512), np.zeros(512, np.int16)],
    ids=["short", "2-D", "float64", "int16"],
)
def test_other_sizes_and_dtypes_are_refused(vad: SileroVad, chunk: Float32) -> None:
    with pytest.raises(ValueError, match="float32"):
        vad.open().probability(chunk)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"nothing\.onnx"):
        SileroVad(EngineSettings("silero", model=str(tmp_path / "nothing.onnx")))


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "noise.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(EngineUnavailable, match=r"noise\.onnx"):
        SileroVad(EngineSettings("silero", model=str(path)))
