"""Kokoro in onnxruntime, cut in two: what is said when, and how it sounds.

The first half is quick. The second takes time in proportion to the sound that it makes, silence included, so
it is run on one stretch after the other, without the silence around what is said, and the first stretch can
be heard while the next is made. Stretches meet where the voice is quietest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import onnx.utils
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_errors

from units.engines.base import EngineError, EngineUnavailable
from units.messages import Float32

FRAME = 600
"""Samples of a frame, 25 ms at 24 kHz."""
FIRST, GROWTH, LONGEST = 30, 1.3, 120
"""Frames of the first stretch, how much longer each next one is, and where that ends. A stretch is made in
about half the time it takes to be heard, its margins included: the next is ready when the last one ends."""
SLACK = 8
"""Frames by which a stretch may be shorter or longer, to end where the voice is quiet."""
LEAST = 20
"""Frames of the last stretch at least."""
HEARING = 50
"""Frames that are made for a later stretch at least, for the model sets its own level: the end of a sentence,
all by itself, would be as loud as the middle."""
MARGIN = 4
"""Frames before and after a stretch that are made with it and not used: the model hears its surroundings."""
LEAD, TAIL = 6, 2
"""Frames kept before and after what is said. The first sound begins up to 3 frames early."""
_FADE = FRAME // 4

_WORDS, _PITCH, _LOUDNESS = (
    "/encoder/MatMul_1_output_0",
    "/encoder/Reshape_output_0",
    "/encoder/Reshape_1_output_0",
)
_DURATIONS = "/encoder/Clip_output_0"
_ERRORS = (
    RuntimeError,
    onnxruntime_errors.Fail,
    onnxruntime_errors.InvalidArgument,
    onnxruntime_errors.InvalidGraph,
    onnxruntime_errors.RuntimeException,
)


class Part(NamedTuple):
    """A stretch of speech, float32 mono at 24 kHz, and whether it is the first or last of its text."""

    sound: Float32
    first: bool
    last: bool


class KokoroOnnx:
    """The model in ``file``, on the CPU. Raises EngineUnavailable."""

    def __init__(self, file: Path) -> None:
        try:
            timing, sounding = _halves(file)
            self._timing, self._sounding = _session(timing), _session(sounding)
        except Exception as error:  # neither library says what its parser may raise
            raise EngineUnavailable(f"{file} is not a Kokoro model that onnxruntime can load.") from error

    def run(self, ids: list[int], style: Float32, speed: float, quiet_end: int) -> Iterator[Part]:
        """Speech for symbols ``ids`` (at most 510), of which the last ``quiet_end`` are not heard.

        ``style`` is float32 [1, 256]. Raises EngineError.
        """
        inputs: dict[str, npt.NDArray[np.generic]] = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": style,
            "speed": np.array([speed], np.float32),
        }
        words, pitch, loudness, durations = _run(self._timing, inputs)
        frames = durations.ravel().astype(int)
        total = words.shape[2]
        begin = max(frames[0] - LEAD, 0)
        end = total - max(frames[len(frames) - 1 - quiet_end :].sum() - TAIL, 0)
        cuts = stretches(loudness.reshape(-1, 2).mean(axis=1), begin, end)
        faded = np.zeros(0, np.float32)
        for start, stop in pairwise(cuts):
            right = min(stop + MARGIN, total)
            left = max(min(start - MARGIN, right - HEARING if start > begin else start), 0)
            made = _run(
                self._sounding,
                {
                    _WORDS: np.ascontiguousarray(words[:, :, left:right]),
                    _PITCH: np.ascontiguousarray(pitch[:, 2 * left : 2 * right]),
                    _LOUDNESS: np.ascontiguousarray(loudness[:, 2 * left : 2 * right]),
                    "style": style,
                },
            )[0].ravel()
            first, last = start == begin, stop == end
            sound = made[
                (start - left) * FRAME - (0 if first else _FADE) : (stop - left) * FRAME
                + (0 if last else _FADE)
            ]
            sound, faded = joined(faded, sound, last)
            yield Part(sound, first, last)


def stretches(loudness: Float32, begin: int, end: int) -> list[int]:
    """Where to cut frames ``begin`` to ``end``, both of which are the outermost cuts."""
    cuts, length = [begin], float(FIRST)
    while end - cuts[-1] > length + SLACK + MARGIN:
        earliest = cuts[-1] + round(length) - SLACK
        latest = min(earliest + 2 * SLACK, end - LEAST)
        cuts.append(earliest + int(np.argmin(loudness[earliest : latest + 1])))
        length = min(length * GROWTH, LONGEST)
    return [*cuts, end]


def joined(before: Float32, sound: Float32, last: bool) -> tuple[Float32, Float32]:
    """``sound`` with the end of the stretch ``before`` faded into it, and its own end, kept for the next."""
    sound = sound.copy()
    if len(before):
        rising = np.linspace(0, 1, len(before), dtype=np.float32)
        sound[: len(before)] = sound[: len(before)] * rising + before * (1 - rising)
    if last:
        return sound, np.zeros(0, np.float32)
    return sound[: -2 * _FADE], sound[-2 * _FADE :]


def _halves(file: Path) -> tuple[bytes, bytes]:
    """The model up to durations, pitch and loudness, and the rest of it. Raises what ``onnx`` raises."""
    model = onnx.load(file)
    shapes = {
        _WORDS: (1, 512, "frames"),
        _PITCH: (1, "halves"),
        _LOUDNESS: (1, "halves"),
        _DURATIONS: (1, "n"),
    }
    del model.graph.value_info[:]
    model.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    extractor = onnx.utils.Extractor(model)
    outputs = [output.name for output in model.graph.output]
    timing = extractor.extract_model(["tokens", "style", "speed"], list(shapes))
    sounding = extractor.extract_model([_WORDS, _PITCH, _LOUDNESS, "style"], outputs)
    return timing.SerializeToString(), sounding.SerializeToString()


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    # Threads that spin within a run make it shorter; between runs they would take the cores from others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Every text has another length: remembered allocation patterns only cost memory.
    options.enable_mem_pattern = False
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run(
    session: onnxruntime.InferenceSession, inputs: dict[str, npt.NDArray[np.generic]]
) -> list[npt.NDArray[np.float32]]:
    try:
        outputs: list[npt.NDArray[np.float32]] = session.run(None, inputs)
    except _ERRORS as error:
        raise EngineError("The voice model could not speak this text.") from error
    return outputs
