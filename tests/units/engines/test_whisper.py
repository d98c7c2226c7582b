"""The recogniser for GPUs, on a tiny model with random weights: the real code path, no meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizer,
)

from tests.speech import CLIPS, load, pink_noise, silence
from units.engines.base import EngineError, EngineSettings, EngineUnavailable, SpeechToText
from units.engines.whisper import Whisper, _cache
from units.messages import Float32

pytestmark = pytest.mark.e2e

SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|nn|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
    "<|0.00|>",
)
WORDS = ("a", "b", "c", "Ġhello", "Ġthere", "!")
ID = {token: index for index, token in enumerate((*WORDS, *SPECIAL))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of two layers that knows six tokens and two languages, as transformers saves it."""
    return saved(tmp_path_factory.mktemp("tiny-whisper"), multilingual=True)


@pytest.fixture(scope="module")
def english_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("tiny-whisper.en"), multilingual=False)


@pytest.fixture
def stt(folder: Path) -> Whisper:
    return Whisper(EngineSettings("whisper", model=str(folder), device="cpu"))


def saved(path: Path, *, multilingual: bool) -> Path:
    torch.manual_seed(1)
    config = WhisperConfig(
        vocab_size=len(ID),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        pad_token_id=ID["<|endoftext|>"],
        bos_token_id=ID["<|endoftext|>"],
        eos_token_id=ID["<|endoftext|>"],
        decoder_start_token_id=ID["<|startoftranscript|>"],
        suppress_tokens=[ID["!"]],
        begin_suppress_tokens=[ID["<|endoftext|>"]],
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config.suppress_tokens = [ID["!"]]
    model.generation_config.begin_suppress_tokens = [ID["<|endoftext|>"]]
    model.generation_config._from_model_config = False
    if multilingual:
        model.generation_config.lang_to_id = {name: ID[name] for name in ("<|en|>", "<|de|>", "<|nn|>")}
    model.save_pretrained(path)
    (path / "vocab.json").write_text(json.dumps(ID))
    (path / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = WhisperTokenizer(str(path / "vocab.json"), str(path / "merges.txt"))
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL[1:])})
    WhisperProcessor(WhisperFeatureExtractor(), tokenizer).save_pretrained(path)
    return path


def speaking(stt: Whisper, monkeypatch: pytest.MonkeyPatch, *tokens: str) -> list[list[int]]:
    """Have the decoder say ``tokens``, surely, whatever it is given; returns what it was given."""
    steps: list[list[int]] = []
    script = [ID[token] for token in tokens]
    step = stt._step

    def scripted(encoded: Any, given: list[int], cache: Any) -> Any:
        out = step(encoded, given, cache)
        steps.append(given)
        said = sum(len(taken) == 1 for taken in steps)
        out.logits[:] = 0
        out.logits[0, -1, script[said] if said < len(script) else ID["<|endoftext|>"]] = 50
        return out

    monkeypatch.setattr(stt, "_step", scripted)
    return steps


def test_it_is_a_recogniser_and_live_only_on_a_gpu(stt: Whisper) -> None:
    assert isinstance(stt, SpeechToText)
    assert not stt.live


def test_random_weights_give_some_text_and_a_language_within_the_cap(stt: Whisper) -> None:
    with torch.inference_mode():
        encoded = stt._encode(load(CLIPS[1][0]))
        language = stt._detect(encoded)
        heard = stt._decode(encoded, language, cap=20)
    assert language in ("en", "de")
    assert 1 <= len(heard.tokens) <= 20
    assert heard.avg_logprob < 0
    assert 0 < heard.no_speech < 1
    assert set(heard.tokens) <= {ID[word] for word in WORDS if word != "!"}


def test_the_words_come_back_stripped(stt: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    speaking(stt, monkeypatch, "Ġhello", "Ġthere")
    heard = stt.transcribe(load(CLIPS[1][0]), language="en-US")
    assert (heard.text, heard.language) == ("hello there", "en")


def test_the_prompt_names_language_and_task(stt: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = speaking(stt, monkeypatch, "a")
    stt.transcribe(load(CLIPS[1][0]), language="de")
    prompt = ("<|startoftranscript|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>")
    assert steps == [[ID[token] for token in prompt], [ID["a"]]]


def test_the_cache_gives_the_same_words_as_decoding_afresh(stt: Whisper) -> None:
    with torch.inference_mode():
        encoded = stt._encode(load(CLIPS[1][0]))
        prompt = [ID["<|startoftranscript|>"], ID["a"]]
        cache = _cache()
        stt._step(encoded, prompt, cache)
        cached = stt._step(encoded, [ID["b"]], cache).logits[0, -1]
        afresh = stt._step(encoded, [*prompt, ID["b"]], _cache()).logits[0, -1]
    assert torch.allclose(cached, afresh, atol=1e-5)


def test_an_english_model_has_no_languages(english_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stt = Whisper(EngineSettings("whisper", model=str(english_folder), language="fr", device="cpu"))
    steps = speaking(stt, monkeypatch, "a")
    assert stt.transcribe(load(CLIPS[1][0]), language="de").text == "a"
    assert steps[0] == [ID["<|startoftranscript|>"], ID["<|notimestamps|>"]]


def test_words_that_the_model_doubts_are_dropped(stt: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("units.engines.whisper_guard.nothing_said", lambda no_speech, logprob: True)
    assert stt.transcribe(pink_noise(2, -30)).text == ""


def test_a_loop_is_cut(stt: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    speaking(stt, monkeypatch, *["Ġhello", "Ġthere"] * 200)
    assert stt.transcribe(load(CLIPS[1][0]), language="en").text == "hello there"


@pytest.mark.parametrize("sound", [silence(3), np.zeros(0, np.float32)], ids=["silence", "empty"])
def test_silence_is_not_decoded(stt: Whisper, sound: Float32, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = speaking(stt, monkeypatch, "a")
    assert stt.transcribe(sound).text == ""
    assert steps == []


def test_a_gpu_out_of_memory_fails_one_utterance(stt: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(samples: Float32) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stt, "_encode", out_of_memory)
    with pytest.raises(EngineError, match="OutOfMemoryError"):
        stt.transcribe(load(CLIPS[1][0]))


def test_a_model_that_cannot_be_had_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EngineUnavailable, match="--stt-model"):
        Whisper(EngineSettings("whisper", model=str(tmp_path)))


def test_a_language_that_nobody_speaks_is_refused_at_the_start(folder: Path) -> None:
    with pytest.raises(EngineUnavailable, match="klingon"):
        Whisper(EngineSettings("whisper", model=str(folder), language="klingon", device="cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(EngineUnavailable, match="CUDA"):
        Whisper(EngineSettings("whisper", model=str(folder), device="cuda"))
