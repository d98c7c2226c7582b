"""Whisper by CTranslate2: int8 on the CPU, float16 on CUDA. The default recogniser.

On the CPU only what was said is encoded, see :mod:`units.engines.whisper_guard`; on a GPU the full 30 s
cost next to nothing. The language is detected from the same encoding that is then decoded.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens

from units.engines import whisper_guard as guard
from units.engines.base import EngineError, EngineSettings, EngineUnavailable, Transcription
from units.messages import EAR_RATE, Float32
from units.models.errors import ModelError, UnknownModel
from units.models.store import ModelStore

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "whisper-base"
_SURE = 0.5


@dataclass(frozen=True, slots=True)
class _Heard:
    """What one decoding gave."""

    text: str
    tokens: list[int]
    cap: int
    """Most tokens that it was allowed."""
    phantom: bool
    """Nothing was said, whatever ``text`` has."""


class FasterWhisper:
    """Speech to text. ``settings.model``: a model of the store, a folder, or a size or hub id that
    faster-whisper knows.

    Calls from several threads take turns: one encoding already keeps all cores busy, and taking turns
    answers the first caller in half the time at the same throughput as interleaving.
    """

    live = True

    def __init__(self, settings: EngineSettings) -> None:
        self._model, cuda = _loaded(settings)
        self._short = not cuda
        self._multilingual = bool(self._model.model.is_multilingual)
        self._language = self._known(settings.language)
        if settings.language and not self._language:
            raise EngineUnavailable(
                f"Whisper knows no language {settings.language!r}; "
                "give an ISO 639-1 code such as 'en', or none to have it detected."
            )
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Run once, so that the first caller does not pay for what is allocated on first use."""
        self._encode(np.zeros(EAR_RATE, np.float32), guard.SHORTEST_S)

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        """The words in ``samples``, float32 mono at 16 kHz of any length; "" when nothing was said.

        An empty or unknown ``language`` falls back to the one of the settings, and then to detection.
        Raises EngineError.
        """
        spoken = self._known(language) or self._language
        try:
            text, spoken = guard.by_pieces(samples, spoken, self._piece)
        except RuntimeError as error:
            raise EngineError(f"The speech recogniser failed: {error}.") from error
        return Transcription(text, spoken or None)

    def _piece(self, samples: Float32, language: str) -> tuple[str, str]:
        """Words and language of at most 27 s."""
        window = guard.window_s(samples.size) if self._short else guard.FULL_S
        with self._lock:
            encoded = self._encode(samples, window)
            language = language or self._detect(encoded)
            heard = self._decode(encoded, samples.size, language)
            if window < guard.FULL_S and not heard.phantom and guard.may_loop(heard.tokens, heard.cap):
                logger.debug("encoding the full window: the transcript repeats itself")
                heard = self._decode(self._encode(samples, guard.FULL_S), samples.size, language)
        if heard.phantom:
            return "", language
        if guard.loops(heard.text, heard.tokens, heard.cap):
            return guard.without_repetition(heard.text), language
        return heard.text, language

    def _encode(self, samples: Float32, window_s: float) -> ctranslate2.StorageView:
        size = int(window_s * EAR_RATE)
        extractor = self._model.feature_extractor
        mel = extractor(np.pad(samples, (0, size - samples.size)), padding=0)
        return self._model.encode(mel[:, : size // extractor.hop_length])

    def _detect(self, encoded: ctranslate2.StorageView) -> str:
        """The language; English when it is about as likely as a guess that the model is not sure of."""
        if not self._multilingual:
            return "en"
        guesses = self._model.model.detect_language(encoded)[0]
        found = {token[2:-2]: probability for token, probability in guesses}
        found.pop(guard.NOISE, None)
        best = max(found, key=lambda name: found[name])
        unsure = found[best] < _SURE and found.get("en", 0.0) > found[best] / 2
        return "en" if unsure else best

    def _decode(self, encoded: ctranslate2.StorageView, samples: int, language: str) -> _Heard:
        tokenizer = Tokenizer(
            self._model.hf_tokenizer, self._multilingual, task="transcribe", language=language
        )
        prompt = self._model.get_prompt(tokenizer, [], without_timestamps=True)
        cap = guard.token_cap(samples, language)
        result = self._model.model.generate(
            encoded,
            [prompt],
            beam_size=1,
            max_length=len(prompt) + cap,
            return_scores=True,
            return_no_speech_prob=True,
            suppress_blank=True,
            suppress_tokens=get_suppressed_tokens(tokenizer, [-1]),
        )[0]
        tokens = list(result.sequences_ids[0])
        # The score is averaged over the tokens without the end; Whisper's thresholds count it.
        logprob = result.scores[0] * len(tokens) / (len(tokens) + 1)
        text = tokenizer.decode(tokens).strip()
        phantom = not any(map(str.isalnum, text)) or guard.nothing_said(result.no_speech_prob, logprob)
        return _Heard(text, tokens, cap, phantom)

    def _known(self, language: str) -> str:
        """ISO 639-1 of a BCP 47 tag if the model knows it, else ""; English for English-only models."""
        if not self._multilingual:
            return "en"
        code = language.replace("_", "-").partition("-")[0].lower()
        return code if f"<|{code}|>" in self._model.hf_tokenizer.get_vocab(with_added_tokens=True) else ""


def _loaded(settings: EngineSettings) -> tuple[WhisperModel, bool]:
    """The model, and whether it is on CUDA; it is there only if it also runs there."""
    found = settings.device != "cpu" and ctranslate2.get_cuda_device_count() > 0
    if settings.device == "cuda" and not found:
        raise EngineUnavailable(
            "No CUDA device was found for the speech recogniser; choose device 'cpu' or 'auto'."
        )
    if found:
        try:
            model = _load(settings, cuda=True)
            model.encode(np.zeros((model.model.n_mels, 3000), np.float32))
            return model, True
        except (EngineUnavailable, RuntimeError) as error:
            if settings.device == "cuda":
                raise EngineUnavailable(
                    f"The speech recogniser cannot use CUDA ({error}); "
                    "pip install 'duologue[cuda]', or choose device 'cpu' or 'auto'."
                ) from error
            logger.warning("speech is recognised on the CPU, since CUDA cannot be used: %s", error)
    return _load(settings, cuda=False), False


def _load(settings: EngineSettings, cuda: bool) -> WhisperModel:
    name = settings.model or DEFAULT_MODEL
    try:
        return WhisperModel(
            _located(name, settings.models_dir),
            device="cuda" if cuda else "cpu",
            compute_type="float16" if cuda else "int8",
            cpu_threads=len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1,
        )
    except ModelError as error:
        raise EngineUnavailable(str(error)) from error
    except (OSError, ValueError, RuntimeError) as error:
        raise EngineUnavailable(
            f"The speech model {name!r} cannot be loaded ({str(error).splitlines()[0]}); "
            f"choose a folder with a CTranslate2 Whisper model, or {DEFAULT_MODEL!r}."
        ) from error


def _located(name: str, root: Path | None) -> str:
    """A folder, or a name that faster-whisper itself resolves."""
    try:
        return str(ModelStore(root).locate(name))
    except UnknownModel:
        return name
