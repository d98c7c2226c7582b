"""Silero VAD, run by onnxruntime.

The session (weights) is shared by all streams; a stream owns the recurrent state and the last 64 samples,
which the model wants in front of each chunk (silero_vad, ``OnnxWrapper``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from units.engines import onnx_file
from units.engines.base import EngineSettings
from units.messages import EAR_RATE, Float32

CHUNK = 512
"""Samples at 16 kHz that the model looks at together: 32 ms."""
CONTEXT = 64
"""Samples of the previous chunk that the model sees again."""

DEFAULT_MODEL = "silero-vad-6.2"
"""The network without branches: less than half the time of the other one, and equal to it to 1e-6."""


class SileroVad:
    """The default voice activity detector. ``settings.model``: a model of the store, or an ONNX file."""

    def __init__(self, settings: EngineSettings) -> None:
        self._session = onnx_file.session(settings, DEFAULT_MODEL, "Silero VAD")

    def open(self) -> SileroStream:
        """A fresh stream; the weights stay shared. onnxruntime sessions may be run from many threads."""
        return SileroStream(self._session)


class SileroStream:
    """One stream of sound: state float32 [2, 1, 128] and 64 samples of context."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._rate = np.array(EAR_RATE, np.int64)
        self._input: Float32
        self._state: Float32
        self.reset()

    def probability(self, chunk: Float32) -> float:
        """Probability of speech in ``chunk``, float32 [512] at 16 kHz; anything else raises ValueError."""
        if chunk.shape != (CHUNK,) or chunk.dtype != np.float32:
            raise ValueError(f"a chunk must be float32 [{CHUNK}], not {chunk.dtype} {list(chunk.shape)}")
        self._input[0, :CONTEXT] = self._input[0, -CONTEXT:]
        self._input[0, CONTEXT:] = chunk
        feed = {"input": self._input, "state": self._state, "sr": self._rate}
        probability, self._state = self._session.run(None, feed)
        return float(probability[0, 0])

    def reset(self) -> None:
        """Forget what was heard."""
        self._input = np.zeros((1, CONTEXT + CHUNK), np.float32)
        self._state = np.zeros((2, 1, 128), np.float32)
