"""Kokoro, an 82 million parameter voice: int8 in onnxruntime on a CPU, the torch model on CUDA.

Text becomes phonemes clause by clause (:mod:`units.engines.phonemes`). On a CPU the sound comes in stretches
(:mod:`units.engines.kokoro_onnx`), so that what is said first is heard while the rest is made. Source of the
model: https://huggingface.co/hexgrad/Kokoro-82M.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.engines.kokoro_onnx import KokoroOnnx, Part
from units.engines.phonemes import phonemes
from units.messages import Float32
from units.models import ModelError, ModelStore
from units.scope import current_scope

logger = logging.getLogger(__name__)

SAMPLE_RATE = 24_000
"""Hz, of everything that the model makes."""
MOST_SYMBOLS = 510
"""Phonemes that the model can take at once, and rows in a voice's style table."""

PIECE = 250
"""Symbols of a longer text that are spoken in one go: with more than 400 the voice begins to hurry."""

LEAD_S, TAIL_S = 0.02, 0.12
"""Silence kept before and after what is said; the tail is the pause between sentences."""
JOINED_TAIL_S = 0.03
"""The tail of a text that was cut in the middle of a sentence."""
_STOPS = tuple(".!?…,;:—。！？")
_UNHEARD = '.!?…,;:—"“”() '
_FRAME = SAMPLE_RATE // 100
_QUIET = 0.002
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
        self.slow = isinstance(self._model, KokoroOnnx)
        _check_phonemes()

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        """Yield float32 mono at 24 kHz, a piece at a time. Raises EngineError.

        A voice that is not known is the default: clients may ask for voices of other engines.
        """
        name = self._known(voice) or self.voices[0]
        speed = min(max(speed, SPEEDS[0]), SPEEDS[1])
        tail_s = TAIL_S if text.rstrip(" \"'”’)]")[-1:] in _STOPS else JOINED_TAIL_S
        for piece in pieces(phonemes(text, british=name.startswith("b"))):
            symbols = "".join(symbol for symbol in piece if symbol in self._model.vocabulary)
            if not symbols:
                continue
            ids = [self._model.vocabulary[symbol] for symbol in symbols]
            style = np.asarray(self._styles[name][len(ids) - 1], np.float32)[None]
            quiet_end = len(symbols) - len(symbols.rstrip(_UNHEARD))
            parts = self._model.run(ids, style, speed, quiet_end)
            while part := self._next(parts):
                yield trimmed(part, tail_s)

    def _next(self, parts: Iterator[Part]) -> Part | None:
        """Make the next part, when it is this caller's turn; None when there is none or nobody wants it."""
        with self._turn:
            return None if current_scope().cancelled else next(parts, None)

    def _default_first(self, default: str) -> tuple[str, ...]:
        return (default, *sorted(self._styles.keys() - {default}))

    def _known(self, voice: str) -> str | None:
        """The voice meant by a name, ours or OpenAI's; None when it is neither."""
        voice = voice.lower()
        voice = OPENAI_VOICES.get(voice, voice)
        return voice if voice in self._styles else None


def pieces(clauses: list[str]) -> Iterator[str]:
    """Group clauses into pieces that the model can take. Joined with spaces they are the whole."""
    piece = ""
    for clause in clauses:
        for part in _fitting(clause):
            if piece and len(piece) + 1 + len(part) > PIECE:
                yield piece
                piece = ""
            piece = f"{piece} {part}" if piece else part
    if piece:
        yield piece


def _fitting(clause: str) -> Iterator[str]:
    """``clause`` in parts of at most PIECE, cut between words where there are any."""
    while len(clause) > PIECE:
        cut = clause.rfind(" ", 1, PIECE + 1)
        cut = cut if cut > 0 else PIECE
        yield clause[:cut]
        clause = clause[cut:].lstrip()
    if clause:
        yield clause


def trimmed(part: Part, tail_s: float = TAIL_S) -> Float32:
    """The sound of ``part`` with only a short silence before and after what is said, and soft edges."""
    sound, first, last = part
    frames = sound[: len(sound) // _FRAME * _FRAME].reshape(-1, _FRAME)
    loud = np.flatnonzero(np.abs(frames).max(axis=1, initial=0.0) > _QUIET)
    start, end = 0, len(sound)
    if first:
        start = max(0, int(loud[0]) * _FRAME - int(LEAD_S * SAMPLE_RATE)) if len(loud) else len(sound)
    if last:
        spoken = (int(loud[-1]) + 1) * _FRAME if len(loud) else 0
        end = max(start, min(len(sound), spoken + int(tail_s * SAMPLE_RATE)))
    kept = sound[start:end].copy()
    edge = min(_FADE, len(kept) // 2)
    ramp = np.linspace(0, 1, edge, dtype=np.float32)
    if first:
        kept[:edge] *= ramp
    if last:
        kept[len(kept) - edge :] *= ramp[::-1]
    return kept


class _Model(Protocol):
    vocabulary: dict[str, int]

    def run(self, ids: list[int], style: Float32, speed: float, quiet_end: int) -> Iterator[Part]:
        """Speech for symbols ``ids`` (at most 510), of which the last ``quiet_end`` are not heard.

        ``style`` is float32 [1, 256]. Raises EngineError.
        """


class _Onnx(KokoroOnnx):
    """The int8 model on the CPU."""

    def __init__(self, folder: Path) -> None:
        file = folder if folder.is_file() else next(folder.glob("*.onnx"), folder / "kokoro.onnx")
        super().__init__(file)
        self.vocabulary = _vocabulary(file.with_name("config.json"))


class _Torch:
    """The original model, for CUDA (or any torch device)."""

    def __init__(self, folder: Path, device: str) -> None:
        try:
            import torch
            from kokoro import KModel
        except ImportError as error:
            raise EngineUnavailable(
                f"Kokoro on {device} needs the packages torch and kokoro ({error}); with Python 3.11 or "
                "3.12, pip install 'duologue[cuda]', or choose --device cpu."
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

    def run(self, ids: list[int], style: Float32, speed: float, quiet_end: int) -> Iterator[Part]:
        torch = self._torch
        tokens = torch.tensor([[0, *ids, 0]], dtype=torch.long, device=self._device)
        try:
            reference = torch.from_numpy(style.copy()).to(self._device)
            sound, _ = self._model.forward_with_tokens(tokens, reference, speed)
        except RuntimeError as error:
            raise EngineError("The voice model could not speak this text.") from error
        yield Part(np.asarray(sound.reshape(-1).float().cpu().numpy(), np.float32), first=True, last=True)


def _load(settings: EngineSettings, store: ModelStore) -> _Model:
    device = settings.device
    if device == "auto":
        usable = _has_cuda() and find_spec("torch") and find_spec("kokoro")
        device = "cuda" if usable and store.state("kokoro-82m") == "present" else "cpu"
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
