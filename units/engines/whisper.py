"""Whisper by ``transformers``: any checkpoint of the family, from the hub or a folder; meant for GPUs.

The decoder is driven here, greedily, rather than by ``generate``: that way the same pass that starts
the transcript also tells the language and whether anybody spoke.
"""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForSpeechSeq2Seq, AutoProcessor, DynamicCache, EncoderDecoderCache

from units.engines import whisper_guard as guard
from units.engines.base import EngineError, EngineSettings, EngineUnavailable, Transcription
from units.messages import EAR_RATE, Float32

MODEL = "openai/whisper-large-v3-turbo"


@dataclass(frozen=True, slots=True)
class _Heard:
    text: str
    tokens: list[int]
    avg_logprob: float
    no_speech: float


class Whisper:
    """Speech to text. ``settings.model`` is a hub id or the folder of a transformers model.

    Calls from several threads take turns.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._device = _device(settings.device)
        self.live = self._device == "cuda"
        self._processor, self._model = _load(settings.model or MODEL, self._device)
        self._tokens = _Tokens(self._processor.tokenizer, self._model)
        self._language = self._tokens.known(settings.language)
        if settings.language and not self._language and self._tokens.languages:
            raise EngineUnavailable(
                f"Whisper knows no language {settings.language!r}; "
                "give an ISO 639-1 code such as 'en', or none to have it detected."
            )
        # Renamed in transformers 5; the old name goes in 5.40.
        renamed = "cache" in inspect.signature(type(self._model).forward).parameters
        self._cache_name = "cache" if renamed else "past_key_values"
        self._lock = threading.Lock()

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        """The words in ``samples``, float32 mono at 16 kHz of any length; "" when nothing was said.

        An empty or unknown ``language`` falls back to the one of the settings, and then to detection.
        Raises EngineError.
        """
        spoken = self._tokens.known(language) or self._language
        try:
            text, spoken = guard.by_pieces(samples, spoken, self._piece)
        except RuntimeError as error:
            raise EngineError(f"The speech recogniser failed ({type(error).__name__}).") from error
        return Transcription(text, spoken or None)

    def _piece(self, samples: Float32, language: str) -> tuple[str, str]:
        with self._lock, torch.inference_mode():
            encoded = self._encode(samples)
            language = language or self._detect(encoded)
            cap = min(guard.token_cap(samples.size, language or "en"), self._tokens.most)
            heard = self._decode(encoded, language, cap)
        if not any(map(str.isalnum, heard.text)) or guard.nothing_said(heard.no_speech, heard.avg_logprob):
            return "", language
        if guard.loops(heard.text, heard.tokens, cap):
            return guard.without_repetition(heard.text), language
        return heard.text, language

    def _encode(self, samples: Float32) -> Any:
        mel = self._processor.feature_extractor(samples, sampling_rate=EAR_RATE, return_tensors="pt")
        features = mel.input_features.to(self._device, self._model.dtype)
        return self._model.get_encoder()(features)

    def _detect(self, encoded: Any) -> str:
        """The likeliest language; "" for an English-only model."""
        languages = self._tokens.languages
        if not languages:
            return ""
        logits = self._step(encoded, [self._tokens.start], _cache()).logits[0, -1]
        return max(languages, key=lambda name: float(logits[languages[name]]))

    def _decode(self, encoded: Any, language: str, cap: int) -> _Heard:
        cache = _cache()
        out = self._step(encoded, self._tokens.prompt(language), cache)
        no_speech = float(out.logits[0, 0].float().softmax(-1)[self._tokens.no_speech])
        tokens: list[int] = []
        total = 0.0
        while True:
            scores = self._tokens.allowed(out.logits[0, -1].float(), first=not tokens).log_softmax(-1)
            token = int(scores.argmax())
            total += float(scores[token])
            if token == self._tokens.end or len(tokens) == cap:
                break
            tokens.append(token)
            out = self._step(encoded, [token], cache)
        text = self._processor.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        return _Heard(text, tokens, total / (len(tokens) + 1), no_speech)

    def _step(self, encoded: Any, tokens: list[int], cache: Any) -> Any:
        """Run the decoder over ``tokens``, after what ``cache`` remembers; logits [1, tokens, vocabulary]."""
        ids = torch.tensor([tokens], device=self._device)
        more = {self._cache_name: cache}
        return self._model(encoder_outputs=encoded, decoder_input_ids=ids, use_cache=True, **more)


class _Tokens:
    """The special tokens of one checkpoint."""

    def __init__(self, tokenizer: Any, model: Any) -> None:
        config = model.generation_config
        self.start: int = model.config.decoder_start_token_id
        self.end: int = model.config.eos_token_id
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        # Older tokenizers call it by its former name.
        self.no_speech = vocabulary.get("<|nospeech|>", vocabulary.get("<|nocaptions|>", self.end))
        self._no_timestamps = vocabulary["<|notimestamps|>"]
        self._transcribe = vocabulary["<|transcribe|>"]
        found: dict[str, int] = getattr(config, "lang_to_id", None) or {}
        self.languages = {
            name.strip("<|>"): token for name, token in found.items() if name != f"<|{guard.NOISE}|>"
        }
        """ISO 639-1 code and token; empty for English-only models."""
        self.most: int = model.config.max_target_positions - 8
        self._suppressed = list(config.suppress_tokens or [])
        self._suppressed_first = [*self._suppressed, *(config.begin_suppress_tokens or [])]

    def known(self, language: str) -> str:
        """ISO 639-1 of a BCP 47 tag if the model knows it, else ""."""
        code = language.replace("_", "-").partition("-")[0].lower()
        return code if code in self.languages else ""

    def prompt(self, language: str) -> list[int]:
        """What the decoder starts from."""
        if not self.languages:
            return [self.start, self._no_timestamps]
        return [self.start, self.languages[language], self._transcribe, self._no_timestamps]

    def allowed(self, logits: Any, *, first: bool) -> Any:
        """``logits`` with everything that is no text ruled out, but the end."""
        logits[self.end + 1 :] = -torch.inf
        logits[self._suppressed_first if first else self._suppressed] = -torch.inf
        return logits


def _cache() -> Any:
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


def _device(wanted: str) -> str:
    found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise EngineUnavailable(
            "There is no CUDA device for the speech recogniser; use --device cpu or auto."
        )
    return "cuda" if found and wanted != "cpu" else "cpu"


def _load(name: str, device: str) -> tuple[Any, Any]:
    dtype = torch.float16 if device == "cuda" else torch.float32
    try:
        processor = AutoProcessor.from_pretrained(name)
        model = AutoModelForSpeechSeq2Seq.from_pretrained(name, dtype=dtype)
    except (OSError, ValueError) as error:
        raise EngineUnavailable(
            f"The speech model {name!r} cannot be loaded; give --stt-model a hub id that this machine can "
            "reach or the folder of a transformers Whisper model, or use the engine faster-whisper."
        ) from error
    if getattr(model.config, "model_type", "") != "whisper":
        raise EngineUnavailable(f"{name!r} is no Whisper model; choose one, such as {MODEL}.")
    return processor, model.to(device).eval()
