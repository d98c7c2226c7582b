"""Traces of calls, for whoever sets OpenTelemetry's own environment variables. They need an extra.

Nothing of OpenTelemetry's SDK is imported when they are not asked for. The tracer is ours alone and not made
the process's: libraries that trace on their own account, and might show what was said, find none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from server.settings import Settings
from server.settings_sources import SettingsError
from server.watch import Watcher

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

FLUSH_S = 5.0
"""For the last spans to be sent when the server stops."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_STAGES = ("turn", "stt", "llm", "tts")


class Tracing:
    """Spans of calls, and where they go."""

    def __init__(self, provider: TracerProvider, settings: Settings) -> None:
        self._provider = provider
        self._engines = {stage: _engine(settings, stage) for stage in _STAGES}

    @property
    def watcher(self) -> Watcher:
        """Makes spans of every call."""
        from server.spans import CallSpans

        tracer = self._provider.get_tracer("duologue", version("duologue"))
        return lambda begun: CallSpans(tracer, begun, self._engines)

    def close(self, seconds: float = FLUSH_S) -> None:
        """Send what has not been sent, and give up after ``seconds``. Blocks."""
        thread = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        thread.start()
        thread.join(seconds)


def exporters(environment: Mapping[str, str]) -> list[str]:
    """Names of the exporters that the environment asks for: ``otlp``, ``console``; none if there is no need
    to trace. Raises SettingsError.

    https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    variable = "OTEL_TRACES_EXPORTER"
    default = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    chosen = environment.get(variable, "").strip() or default
    names = [name.strip() for name in chosen.split(",") if name.strip() != "none"]
    if unknown := [name for name in names if name not in ("otlp", "console")]:
        raise SettingsError(f"{variable} names {unknown[0]!r}; otlp, console and none are known.")
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "http/protobuf")
    if "otlp" in names and protocol != "http/protobuf":
        raise SettingsError(f"Traces are sent as http/protobuf, not as {protocol}: set {_PROTOCOLS[0]}.")
    return names


def start_tracing(settings: Settings, environment: Mapping[str, str] = os.environ) -> Tracing | None:
    """Traces as the environment wants them, None if it does not. Raises SettingsError."""
    names = exporters(environment)
    if not names:
        return None
    try:
        return Tracing(_provider(names), settings)
    except ImportError as error:
        raise SettingsError(
            "The environment asks for traces (OTEL_...), which need an extra: pip install 'duologue[otel]'; "
            f"or set OTEL_SDK_DISABLED=true. ({error})"
        ) from error


def _provider(names: list[str]) -> TracerProvider:
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    chosen = Resource.create()  # from the environment
    ours = {SERVICE_VERSION: version("duologue"), **dict(chosen.attributes)}
    if str(chosen.attributes[SERVICE_NAME]).startswith("unknown_service"):
        ours[SERVICE_NAME] = "duologue"
    provider = TracerProvider(resource=chosen.merge(Resource(ours)), shutdown_on_exit=False)
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return provider


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _engine(settings: Settings, stage: str) -> dict[str, str]:
    """What spans say of a stage's engine: its name, and its model if one was chosen; of a path the end."""
    engine = settings.engine(stage)  # type: ignore[arg-type]
    attributes = {"gen_ai.provider.name": engine.name}
    if engine.model:
        local = Path(engine.model).is_absolute() or engine.model.startswith((".", "~"))
        attributes["gen_ai.request.model"] = Path(engine.model).name if local else engine.model
    return attributes
