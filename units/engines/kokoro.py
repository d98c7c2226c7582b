"""Kokoro, an 82 million parameter voice: int8 in onnxruntime on a CPU, the torch model on CUDA.

Text becomes phonemes clause by clause (:mod:`units.engines.phonemes`). A short text is spoken in one
go; a long one in pieces that start small and grow, so that the first sound is early and every piece is
ready before the last has been heard. Source of the model: https://huggingface.co/hexgrad/Kokoro-82M.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime

from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.engines.phonemes import phonemes
from units.messages import Float32
from units.models import ModelError, ModelStore
from units.scope import current_scope

logger = logging.getLogger(__name__)

SAMPLE_RATE = 24_000
"""Hz, of everything that the model makes."""
MOST_SYMBOLS = 510
"""Phonemes that the model can take at once, and rows in a voice's style table."""

FIRST_PIECE = 100
"""Symbols of the first piece of a long text; a sentence of 15 words is still one piece."""
GROWTH = 2
"""A piece may be this much longer than the one before: synthesis takes half as long as its sound."""

LEAD_S, TAIL_S = 0.02, 0.12
"""Silence kept before and after what is said; the tail is the pause between sentences."""
JOINED_TAIL_S = 0.03
"""The tail of a text that was cut in the middle of a sentence."""
_STOPS = tuple(".!?…,;:—。！？")
_FRAME = SAMPLE_RATE // 100
_QUIET = 10 ** (-45 / 20)
_FADE = SAMPLE_RATE // 200

DEFAULT_VOICE, DEFAULT_BRITISH_VOICE = "af_heart", "bf_emma"
OPENAI_VOICES = {
    "alloy": "af_alloy", "ash": "am_michael", "ballad": "bm_fable", "cedar": "am_fenrir",
    "coral": "af_bella", "echo": "am_echo", "fable": "bm_fable", "marin": "af_heart", "nova": "af_nova",
    "onyx": "am_onyx", "sage": "af_sarah", "shimmer": "af_sky", "verse": "am_puck",
}  # fmt: skip
"""What OpenAI's voices are called here."""
SPEEDS = (0.5, 2.0)
"""Slowest and fastest; beyond, words are swallowed."""


class Kokoro:
    """English speech in 28 voices. Shared by all units; one synthesis at a time."""

    sample_rate = SAMPLE_RATE

    def __init__(self, settings: EngineSettings) -> None:
        store = ModelStore(settings.models_dir)
        self._model = _load(settings, store)
        self._styles = _load_voices(store)
        british = settings.language.lower() == "en-gb"
        default = DEFAULT_BRITISH_VOICE if british else DEFAULT_VOICE
        self.voices = self._default_first(default)
        if settings.voice:
            chosen = self._known(settings.voice)
            if chosen is None:
                known = ", ".join(self.voices)
                raise EngineUnavailable(f"There is no voice {settings.voice!r}; choose one of: {known}.")
            self.voices = self._default_first(chosen)
        self._turn = threading.Lock()
        self.incremental = not isinstance(self._model, _Onnx)
        _check_phonemes()

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        """Yield float32 mono at 24 kHz, a piece at a time. Raises EngineError.

        A voice that is not known is the default: clients may ask for voices of other engines.
        """
        name = self._known(voice) or self.voices[0]
        speed = min(max(speed, SPEEDS[0]), SPEEDS[1])
        scope = current_scope()
        tail_s = TAIL_S if text.rstrip(" \"'”’)]")[-1:] in _STOPS else JOINED_TAIL_S
        for piece in pieces(phonemes(text, british=name.startswith("b"))):
            ids = [self._model.vocabulary[symbol] for symbol in piece if symbol in self._model.vocabulary]
            if not ids:
                continue
            style = np.asarray(self._styles[name][len(ids) - 1], np.float32)[None]
            with self._turn:
                if scope.cancelled:
                    return
                sound = self._model.run(ids, style, speed)
            yield trimmed(sound, tail_s)

    def _default_first(self, default: str) -> tuple[str, ...]:
        return (default, *sorted(self._styles.keys() - {default}))

    def _known(self, voice: str) -> str | None:
        """The voice meant by a name, ours or OpenAI's; None when it is neither."""
        voice = voice.lower()
        voice = OPENAI_VOICES.get(voice, voice)
        return voice if voice in self._styles else None


def pieces(clauses: list[str]) -> Iterator[str]:
    """Group clauses into pieces that the model can take. Joined with spaces they are the whole."""
    limit, piece = FIRST_PIECE, ""
    for clause in clauses:
        for part in _fitting(clause):
            if piece and len(piece) + 1 + len(part) > limit:
                yield piece
                limit, piece = min(GROWTH * limit, MOST_SYMBOLS), ""
            piece = f"{piece} {part}" if piece else part
    if piece:
        yield piece


def _fitting(clause: str) -> Iterator[str]:
    """``clause`` in parts of at most MOST_SYMBOLS, cut between words where there are any."""
    while len(clause) > MOST_SYMBOLS:
        cut = clause.rfind(" ", 1, MOST_SYMBOLS + 1)
        cut = cut if cut > 0 else MOST_SYMBOLS
        yield clause[:cut]
        clause = clause[cut:].lstrip()
    if clause:
        yield clause


def trimmed(sound: Float32, tail_s: float = TAIL_S) -> Float32:
    """``sound`` (24 kHz) with only a short silence before and after what is said, and soft edges."""
    frames = sound[: len(sound) // _FRAME * _FRAME].reshape(-1, _FRAME)
    loud = np.flatnonzero(np.abs(frames).max(axis=1, initial=0.0) > _QUIET * np.abs(sound).max(initial=0.0))
    if not len(loud):
        return sound
    start = max(0, int(loud[0]) * _FRAME - int(LEAD_S * SAMPLE_RATE))
    end = min(len(sound), (int(loud[-1]) + 1) * _FRAME + int(tail_s * SAMPLE_RATE))
    kept = sound[start:end].copy()
    edge = min(_FADE, len(kept) // 2)
    ramp = np.linspace(0, 1, edge, dtype=np.float32)
    kept[:edge] *= ramp
    kept[len(kept) - edge :] *= ramp[::-1]
    return kept


class _Model(Protocol):
    vocabulary: dict[str, int]

    def run(self, ids: list[int], style: Float32, speed: float) -> Float32:
        """Speech for symbols ``ids`` (at most 510), style float32 [1, 256]: float32 mono at 24 kHz."""


class _Onnx:
    """The int8 model on the CPU."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count() or 1
        # Threads that spin within a run make it shorter; between runs they would take the cores from others.
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        # Every text has another length: remembered allocation patterns only cost memory.
        options.enable_mem_pattern = False
        file = folder if folder.is_file() else next(folder.glob("*.onnx"), folder / "kokoro.onnx")
        try:
            self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        except (RuntimeError, *_ONNX_ERRORS) as error:
            raise EngineUnavailable(f"{file} is not a Kokoro model that onnxruntime can load.") from error
        self.vocabulary = _vocabulary(file.with_name("config.json"))

    def run(self, ids: list[int], style: Float32, speed: float) -> Float32:
        inputs = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": style,
            "speed": np.array([speed], np.float32),
        }
        try:
            sound: Float32 = self._session.run(None, inputs)[0]
        except (RuntimeError, *_ONNX_ERRORS) as error:
            raise EngineError("The voice model could not speak this text.") from error
        return sound.reshape(-1)


class _Torch:
    """The original model, for CUDA (or any torch device)."""

    def __init__(self, folder: Path, device: str) -> None:
        try:
            import torch
            from kokoro import KModel
        except ImportError as error:
            raise EngineUnavailable(
                f"Kokoro on {device} needs the packages torch and kokoro ({error}; kokoro serves Python 3.11 "
                "and 3.12); install them, or choose --device cpu."
            ) from error
        if device == "cuda" and not torch.cuda.is_available():
            raise EngineUnavailable("There is no CUDA device that torch can use; choose --device cpu.")
        config, checkpoint = folder / "config.json", folder / "kokoro-v1_0.pth"
        self.vocabulary = _vocabulary(config)
        self._torch = torch
        self._device = device
        try:
            model = KModel(repo_id="hexgrad/Kokoro-82M", config=str(config), model=str(checkpoint))
            self._model = model.to(device).eval()
        except (OSError, RuntimeError, AssertionError) as error:
            raise EngineUnavailable(f"The Kokoro model in {folder} could not be loaded: {error}.") from error

    def run(self, ids: list[int], style: Float32, speed: float) -> Float32:
        torch = self._torch
        tokens = torch.tensor([[0, *ids, 0]], dtype=torch.long, device=self._device)
        try:
            reference = torch.from_numpy(style.copy()).to(self._device)
            sound, _ = self._model.forward_with_tokens(tokens, reference, speed)
        except RuntimeError as error:
            raise EngineError("The voice model could not speak this text.") from error
        return np.asarray(sound.reshape(-1).float().cpu().numpy(), np.float32)


_ONNX_ERRORS = (
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
    onnxruntime.capi.onnxruntime_pybind11_state.InvalidProtobuf,
    onnxruntime.capi.onnxruntime_pybind11_state.NoSuchFile,
    onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException,
)


def _load(settings: EngineSettings, store: ModelStore) -> _Model:
    device = settings.device
    if device == "auto":
        device = "cuda" if _has_cuda() and store.state("kokoro-82m") == "present" else "cpu"
    try:
        if device == "cpu":
            return _Onnx(store.locate(settings.model or "kokoro-82m-int8"))
        return _Torch(store.locate(settings.model or "kokoro-82m"), device)
    except ModelError as error:
        raise EngineUnavailable(str(error)) from error


def _has_cuda() -> bool:
    """Whether there is an NVIDIA driver; asking torch would cost a second and 150 MB."""
    return Path("/proc/driver/nvidia/version").exists()


def _load_voices(store: ModelStore) -> dict[str, Float32]:
    """Style tables float32 [510, 256] by voice, mapped from disk."""
    try:
        folder = store.path("kokoro-voices")
    except ModelError as error:
        raise EngineUnavailable(str(error)) from error
    return {file.stem: _style(file) for file in sorted(folder.glob("*.bin"))}


def _style(file: Path) -> npt.NDArray[np.float32]:
    return np.memmap(file, np.float32, "r", shape=(MOST_SYMBOLS, 256))


def _vocabulary(config: Path) -> dict[str, int]:
    try:
        vocabulary: dict[str, int] = json.loads(config.read_text(encoding="utf-8"))["vocab"]
    except (OSError, ValueError, KeyError) as error:
        raise EngineUnavailable(f"{config}, which belongs to the Kokoro model, cannot be read.") from error
    return vocabulary


def _check_phonemes() -> None:
    """Load espeak-ng now rather than at the first sentence."""
    try:
        phonemes("ready")
    except (ImportError, OSError) as error:
        raise EngineUnavailable(
            f"Kokoro needs the espeak-ng library ({error}); run: pip install espeakng-loader"
        ) from error
