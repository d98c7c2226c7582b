"""Smart Turn v3: has the speaker finished? A small Whisper encoder that listens to how it was said.

It wants the features of Whisper's tiny encoder: 8 s of sound, which end with what was said last and begin
with zeros if there is less, at zero mean and unit variance, as a log-mel spectrogram.
"""

from __future__ import annotations

import numpy as np
from faster_whisper.feature_extractor import FeatureExtractor

from units.engines import onnx_file
from units.engines.base import EngineError, EngineSettings
from units.messages import EAR_RATE, Float32

DEFAULT_MODEL = "smart-turn-v3.2"
_SECONDS = 8
_TINY = 1e-7
"""Added to the variance, as Whisper's own feature extractor has it."""


class SmartTurn:
    """The default model of the end of turn. ``settings.model``: a model of the store, or an ONNX file.

    Several threads may ask at once.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self._session = onnx_file.session(settings, DEFAULT_MODEL, "Smart Turn")
        self._extractor = FeatureExtractor(chunk_length=_SECONDS)

    def finished(self, samples: Float32) -> float:
        """Probability that the speaker has finished, from the last 8 s of ``samples``. Raises EngineError."""
        try:
            outputs = self._session.run(None, {"input_features": self._features(samples)})
        except onnx_file.RUN_ERRORS as error:
            raise EngineError(f"The model of the end of turn failed: {error}.") from error
        return float(outputs[0].item())

    def _features(self, samples: Float32) -> Float32:
        """float32 [1, 80, 800]."""
        size = _SECONDS * EAR_RATE
        last = samples[-size:]
        sound = np.pad(last, (size - len(last), 0))
        level = (sound - sound.mean()) / np.sqrt(sound.var() + _TINY)
        features: Float32 = self._extractor(level, padding=0)[None].astype(np.float32)
        return features
