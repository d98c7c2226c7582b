"""When there are traces, and that a server without them knows nothing of OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from server.settings import Settings
from server.settings_sources import SettingsError
from server.tracing import Tracing, exporters, start_tracing
from server.watch import Begun

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, []),
        (ENDPOINT, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4318/v1/metrics"}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ["otlp"]),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp", "console"]),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, []),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, []),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, ["otlp"]),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ["otlp"]),
    ],
)
def test_traces_are_made_when_the_environment_asks_for_them(
    environment: dict[str, str], names: list[str]
) -> None:
    assert exporters(environment) == names


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER names 'zipkin'"),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf, not as grpc"),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "not as http/json"),
    ],
)
def test_what_cannot_be_done_is_said_at_the_start(environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        exporters(environment)


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(SettingsError, match=r"pip install 'duologue\[otel\]'"):
        start_tracing(Settings(), ENDPOINT)
    assert start_tracing(Settings(), {}) is None


def test_a_server_that_does_not_trace_loads_nothing_of_the_sdk() -> None:
    program = (
        "import sys, server.__main__\n"
        "from server.settings import Settings\n"
        "from server.tracing import start_tracing\n"
        "assert start_tracing(Settings(), {}) is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class _Stuck(SpanExporter):
    """A collector that takes the connection and then says nothing."""

    def __init__(self) -> None:
        self.answer = threading.Event()

    def export(self, spans: object) -> SpanExportResult:
        self.answer.wait()
        return SpanExportResult.FAILURE


class _Kept(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: object) -> SpanExportResult:
        self.spans += spans  # type: ignore[arg-type, operator]
        return SpanExportResult.SUCCESS


def provider(exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=8, max_export_batch_size=4))
    return provider


def test_a_collector_that_hangs_holds_up_neither_calls_nor_the_end() -> None:
    exporter = _Stuck()
    tracing = Tracing(provider(exporter), Settings())
    began = time.monotonic()
    for number in range(100):
        tracing.watcher(Begun(f"rtc_{number}", "webrtc", 0)).closed("hung up")  # type: ignore[union-attr]
    tracing.close(0.2)
    assert time.monotonic() - began < 2
    exporter.answer.set()


def test_what_was_not_sent_yet_is_sent_at_the_end_and_names_the_engines() -> None:
    exporter = _Kept()
    settings = Settings(llm_backend="llama-cpp", llm_model="/srv/models/qwen3.gguf", stt_model="org/whisper")
    tracing = Tracing(provider(exporter), settings)
    tracing.watcher(Begun("rtc_1", "webrtc", 0)).closed("hung up")  # type: ignore[union-attr]
    tracing.close()
    assert [span.name for span in exporter.spans] == ["call"]
    assert tracing._engines["llm"] == {
        "gen_ai.provider.name": "llama-cpp",
        "gen_ai.request.model": "qwen3.gguf",
    }
    assert tracing._engines["stt"]["gen_ai.request.model"] == "org/whisper"
    assert "gen_ai.request.model" not in tracing._engines["tts"]
