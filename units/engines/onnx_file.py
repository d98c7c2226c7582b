"""A small ONNX model, run by onnxruntime on one thread that does not spin."""

from __future__ import annotations

from typing import Any

import onnxruntime

from units.engines.base import EngineSettings, EngineUnavailable
from units.models import ModelError, ModelStore

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


def session(settings: EngineSettings, default: str, title: str) -> Any:
    """The model of ``settings``: a model of the store or an ONNX file, by default the model ``default``.

    Several threads may run it at once. ``title`` says what model it should be. Raises EngineUnavailable.
    """
    try:
        path = ModelStore(settings.models_dir).locate(settings.model or default)
    except ModelError as error:
        raise EngineUnavailable(str(error)) from error
    if path.is_dir():
        path = next(path.glob("*.onnx"), path / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _LOAD_ERRORS as error:
        raise EngineUnavailable(f"{path} cannot be loaded as a {title} model ({error}).") from error
