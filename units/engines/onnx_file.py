"""A small ONNX model, run by onnxruntime on one thread that does not spin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime

from units.engines.base import EngineUnavailable

# onnxruntime's exceptions share no base class but Exception.
_state = onnxruntime.capi.onnxruntime_pybind11_state
_LOAD_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    _state.Fail,
    _state.InvalidArgument,
    _state.InvalidGraph,
    _state.InvalidProtobuf,
)
RUN_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    _state.Fail,
    _state.InvalidArgument,
    _state.RuntimeException,
)
"""What running a session may raise."""


def session(path: Path, title: str) -> Any:
    """The model in ``path``, which several threads may run at once. Raises EngineUnavailable.

    ``title`` says what model it should be.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _LOAD_ERRORS as error:
        raise EngineUnavailable(f"{path} cannot be loaded as a {title} model ({error}).") from error
