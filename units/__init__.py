"""One conversation, or many: audio and client events in, audio and server events out.

Knows no HTTP and no WebRTC. The names below are the public ones.
"""

from units.build import Pipeline, build_pipeline, build_unit, load_engines
from units.config import PipelineConfig
from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.engines.registry import register
from units.observe import Observer, Worked
from units.pool import PoolFull, UnitPool, UnitState, UnitStatus
from units.scope import CancelScope, current_scope
from units.session import Session, Transport
from units.unit import Engines, PipelineUnit

__all__ = [
    "CancelScope",
    "EngineError",
    "EngineSettings",
    "EngineUnavailable",
    "Engines",
    "Observer",
    "Pipeline",
    "PipelineConfig",
    "PipelineUnit",
    "PoolFull",
    "Session",
    "Transport",
    "UnitPool",
    "UnitState",
    "UnitStatus",
    "Worked",
    "build_pipeline",
    "build_unit",
    "current_scope",
    "load_engines",
    "register",
]
