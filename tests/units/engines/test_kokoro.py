from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from units.engines.base import EngineSettings, EngineUnavailable
from units.engines.kokoro import (
    DEFAULT_VOICE,
    MOST_SYMBOLS,
    OPENAI_VOICES,
    PIECE,
    SAMPLE_RATE,
    Kokoro,
    pieces,
    trimmed,
)
from units.engines.kokoro_onnx import Part
from units.messages import Float32
from units.models import CATALOGUE


def test_a_sentence_is_one_piece() -> None:
    assert list(pieces(["həlˈO,", "wˈɜɹld!"])) == ["həlˈO, wˈɜɹld!"]


@pytest.mark.parametrize(
    "clauses",
    [["ab cd," for _ in range(400)], ["word " * 400], ["x" * 3000], ["a" * 500, "b" * 20, "c" * 700]],
)
def test_a_long_text_is_cut_without_losing_anything(clauses: list[str]) -> None:
    cut = list(pieces([clause.strip() for clause in clauses]))
    assert "".join(cut).replace(" ", "") == "".join(clauses).replace(" ", "")
    assert max(map(len, cut)) <= PIECE


TONE = np.sin(np.arange(SAMPLE_RATE) / 10).astype(np.float32)
SILENCE = np.full(SAMPLE_RATE, 1e-4, np.float32)


@pytest.mark.parametrize(
    ("first", "last", "seconds"),
    [(True, True, 1.14), (True, False, 2.02), (False, True, 2.12), (False, False, 3.0)],
)
def test_silence_around_what_is_said_is_cut_to_a_short_margin(
    first: bool, last: bool, seconds: float
) -> None:
    kept = trimmed(Part(np.concatenate([SILENCE, TONE, SILENCE]), first, last))
    assert len(kept) / SAMPLE_RATE == pytest.approx(seconds, abs=0.02)
    assert kept.dtype == np.float32
    assert (kept[0] == 0) == first
    assert (kept[-1] == 0) == last


@pytest.mark.parametrize("length", [0, 1, 100, 24_000])
def test_silence_alone_is_no_sound(length: int) -> None:
    assert len(trimmed(Part(np.zeros(length, np.float32), True, True))) == 0


def test_openai_voices_are_voices_that_the_store_has() -> None:
    stored = {file.name.removesuffix(".bin") for file in CATALOGUE["kokoro-voices"].files}
    assert {*OPENAI_VOICES.values(), DEFAULT_VOICE} <= stored


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
def test_without_the_model_it_says_how_to_fetch_it(tmp_path: Path, device: str) -> None:
    with pytest.raises(EngineUnavailable, match="run: duologue models fetch kokoro-82m"):
        Kokoro(EngineSettings("kokoro", models_dir=tmp_path, device=device))


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "kokoro.onnx").write_bytes(b"not a model")
    with pytest.raises(EngineUnavailable, match=r"kokoro\.onnx is not a Kokoro model"):
        Kokoro(EngineSettings("kokoro", model=str(tmp_path), device="cpu"))


class FakeModel:
    """Notes whose style table it was given: every table below holds one number."""

    vocabulary = dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1)

    def __init__(self) -> None:
        self.heard: list[float] = []

    def run(self, ids: list[int], style: Float32, speed: float, quiet_end: int) -> Iterator[Part]:
        self.heard.append(float(style[0, 0]))
        yield Part(np.ones(100, np.float32), True, True)


@pytest.fixture
def fake_model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    model = FakeModel()
    names = ["af_heart", "am_echo", "bf_emma"]
    styles = {name: np.full((MOST_SYMBOLS, 256), n, np.float32) for n, name in enumerate(names)}
    monkeypatch.setattr("units.engines.kokoro._load", lambda settings, store: model)
    monkeypatch.setattr("units.engines.kokoro._load_voices", lambda store: styles)
    return model


@pytest.mark.usefixtures("fake_model")
def test_a_chosen_voice_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(EngineUnavailable, match="no voice 'bob'; choose one of: af_heart, am_echo, bf_emma"):
        Kokoro(EngineSettings("kokoro", voice="bob"))


@pytest.mark.usefixtures("fake_model")
@pytest.mark.parametrize("voice", ["am_echo", "AM_Echo", "echo"])
def test_a_chosen_voice_is_the_default(voice: str) -> None:
    assert Kokoro(EngineSettings("kokoro", voice=voice)).voices == ("am_echo", "af_heart", "bf_emma")


def test_a_client_asking_for_a_voice_that_does_not_exist_hears_the_default(fake_model: FakeModel) -> None:
    assert list(Kokoro(EngineSettings("kokoro", voice="am_echo")).synthesize("Hello.", voice="bob"))
    assert fake_model.heard == [1.0]
