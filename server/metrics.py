"""What this server does, in numbers, for Prometheus: ``GET /metrics``.

Everything about a session comes from watching it, so no other module counts anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from server.doors import FRESH
from server.media import Media
from server.records.setup import RECORDS
from server.startup import STARTUP, Phase, Startup
from server.watch import Begun
from units import Observer, UnitState, Worked
from units.session import SHUTTING_DOWN

ENDINGS = {
    "hung up": "hung_up",
    "hung up over HTTP": "hung_up",
    "the data channel was closed": "hung_up",
    "the connection was closed by the peer": "hung_up",
    "the client left": "hung_up",
    "the connection failed": "connection_failed",
    "the peer did not connect": "never_connected",
    "the offer was not answered": "never_connected",
    "the client went away before it was answered": "never_connected",
    "the peer has fallen silent": "vanished",
    "the client has fallen silent": "vanished",
    "the client does not read its events": "not_reading",
    "the client sent a message that is too long": "too_long",
    "wrong settings": "wrong_settings",
    "session expired": "expired",
    SHUTTING_DOWN: "shutdown",
}
"""Label of each reason for which sessions end; any other is a failure."""

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})

LATENCY = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 20.0)
STAGE = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
LENGTH = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)
JITTER = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
ROUND_TRIP = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)


class Metrics:
    """The counters of one server."""

    def __init__(self, startup: Startup, unkept: Callable[[], int] = int) -> None:
        """``unkept``: how many records of calls could not be kept."""
        self._startup = startup
        self._unkept = unkept
        self._open: dict[str, int] = {"webrtc": 0, "websocket": 0}
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"duologue_{name}", about, labels, registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"duologue_{name}", about, labels, buckets=buckets, registry=registry)

        self.requests = counter("http_requests", "HTTP requests.", "method", "route", "status")
        self.sessions = counter("sessions_ended", "Sessions that are over, by how they ended.", "door", "end")
        self.session_seconds = histogram("session_seconds", "Length of sessions.", LENGTH, "door")
        self.turns = counter("turns", "Times that a caller spoke and had finished.")
        self.responses = counter("responses", "Responses that are done.", "status")
        self.barge_ins = counter("barge_ins", "Times that a caller spoke and an answer stopped for it.")
        self.latency = histogram(
            "response_latency_seconds",
            "From where the caller fell silent to the first sound of the answer.",
            LATENCY,
            "door",
        )
        self.stage_seconds = histogram(
            "stage_seconds",
            "What each engine took for a piece of work: to the first of its result, and to all of it. "
            "Of vad: from where the caller fell silent to the end of the turn.",
            STAGE,
            "stage",
            "part",
        )
        self.failures = counter("stage_failures", "Pieces of work at which an engine failed.", "stage")
        self.sound = counter(
            "stage_sound_seconds", "Sound that was recognised (stt) and made (tts).", "stage"
        )
        self.tokens = counter("tokens", "Tokens of the language model.", "kind")
        self.packets = counter("media_packets", "RTP packets that came in, and that were sent.", "direction")
        self.lost = counter("media_packets_lost", "Of those, how many never came.", "direction")
        self.jitter = histogram(
            "media_jitter_seconds", "Jitter of a call, every five seconds.", JITTER, "direction"
        )
        self.round_trip = histogram(
            "media_round_trip_seconds", "Round trip time of a call, every five seconds.", ROUND_TRIP
        )
        for family, values in (
            (self.failures, ("vad", "turn", "stt", "llm", "tts")),
            (self.responses, ("completed", "cancelled", "failed", "incomplete")),
            (self.packets, ("in", "out")),
            (self.lost, ("in", "out")),
        ):
            for value in values:
                family.labels(value)  # there from the beginning: a rate knows nothing of the first one else
        for door in self._open:
            self.latency.labels(door)
            self.session_seconds.labels(door)
            for end in {*ENDINGS.values(), "failure"}:
                self.sessions.labels(door, end)
        registry.register(_Now(self._now))

    def watch(self, begun: Begun) -> Observer:
        """Count one session."""
        return _Session(self, begun.door)

    def media(self, media: Media) -> None:
        """Add a reading of a call."""
        self.packets.labels("in").inc(media.received)
        self.packets.labels("out").inc(media.sent)
        # A packet that is only late is taken back, which a counter cannot do: it stays lost.
        self.lost.labels("in").inc(max(0, media.lost))
        self.lost.labels("out").inc(max(0, media.sent_lost))
        for direction, jitter in (("in", media.jitter), ("out", media.sent_jitter)):
            if jitter is not None:
                self.jitter.labels(direction).observe(jitter)
        if media.round_trip is not None:
            self.round_trip.observe(media.round_trip)

    def began(self, door: str) -> None:
        self._open[door] += 1

    def ended(self, door: str, reason: str, seconds: float) -> None:
        self._open[door] -= 1
        self.sessions.labels(door, ENDINGS.get(reason, "failure")).inc()
        self.session_seconds.labels(door).observe(seconds)

    def _now(self) -> Iterator[Metric]:
        """What is true at the moment."""
        startup = self._startup
        ready = GaugeMetricFamily("duologue_ready", "1 when the models are loaded and calls are taken.")
        ready.add_metric([], float(startup.phase is Phase.READY))
        yield ready
        units = GaugeMetricFamily("duologue_units", "Units by state.", labels=["state"])
        states = [status.state for status in startup.pipeline.pool.states()] if startup.pipeline else []
        for state in UnitState:
            units.add_metric([state.value], states.count(state))
        yield units
        sessions = GaugeMetricFamily("duologue_sessions", "Sessions that are open.", labels=["door"])
        for door, count in self._open.items():
            sessions.add_metric([door], count)
        yield sessions
        unkept = "Files of records that were given up, and records that no webhook's receiver got."
        yield CounterMetricFamily("duologue_record_failures", unkept, self._unkept())


class _Now:
    """A collector for what is looked up rather than counted."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect


class _Session(Observer):
    """Counts what happens in one session."""

    def __init__(self, metrics: Metrics, door: str) -> None:
        self._metrics = metrics
        self._door = door
        self._began = time.monotonic()
        self._silent_since: float | None = None  # the caller has finished and has not heard an answer
        self._speaking = False  # and has not interrupted anything
        metrics.began(door)

    def worked(self, scope: str, work: Worked) -> None:
        metrics, stage = self._metrics, work.stage
        if stage == "vad":
            self._silent_since = work.began
        if work.outcome == "failed":
            metrics.failures.labels(stage).inc()
        if work.purpose == "live":
            return
        if work.first is not None:
            metrics.stage_seconds.labels(stage, "first").observe(work.first - work.began)
        if work.outcome != "done":
            return
        metrics.stage_seconds.labels(stage, "all").observe(work.ended - work.began)
        if stage in ("stt", "tts"):
            metrics.sound.labels(stage).inc(work.amount)

    def sent(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "input_audio_buffer.speech_started":
                self._speaking, self._silent_since = True, None
            case "input_audio_buffer.speech_stopped":
                self._speaking = False
            case "input_audio_buffer.committed":
                self._metrics.turns.inc()
            case "output_audio_buffer.started" | "response.output_audio.delta":
                self._answered()
            case "output_audio_buffer.cleared" if self._speaking:
                self._interrupted()
            case "response.done":
                self._done(event["response"])

    def stopped(self, item_id: str, audio_end_ms: int) -> None:
        if self._speaking:
            self._interrupted()

    def closed(self, reason: str) -> None:
        self._metrics.ended(self._door, reason, time.monotonic() - self._began)

    def _answered(self) -> None:
        if self._silent_since is not None:
            self._metrics.latency.labels(self._door).observe(time.monotonic() - self._silent_since)
            self._silent_since = None

    def _interrupted(self) -> None:
        """Once for each time that the caller begins to speak, whatever stops for it."""
        self._speaking = False
        self._metrics.barge_ins.inc()

    def _done(self, response: dict[str, Any]) -> None:
        self._metrics.responses.labels(response["status"]).inc()
        if (response["status_details"] or {}).get("reason") == "turn_detected" and self._speaking:
            self._interrupted()
        usage = response["usage"] or {}
        for kind in ("input", "output"):
            self._metrics.tokens.labels(kind).inc(usage.get(f"{kind}_tokens", 0))
        cached = usage.get("input_token_details", {}).get("cached_tokens", 0)
        self._metrics.tokens.labels("cached").inc(cached)


def setup_metrics(app: web.Application) -> Metrics:
    """Add ``/metrics``, and count every request. Needs what ``setup_startup`` and ``setup_records`` add."""
    metrics = Metrics(app[STARTUP], lambda: app[RECORDS].failures)

    async def answer(request: web.Request) -> web.Response:
        """Everything, in the text format that the client asks for."""
        try:
            encode, kind = choose_encoder(request.headers.get("Accept", ""))
        except (TypeError, ValueError):  # a version that is none
            encode, kind = choose_encoder("")
        return web.Response(body=encode(metrics.registry), headers={**FRESH, "Content-Type": kind})

    async def count(request: web.Request, response: web.StreamResponse) -> None:
        resource = request.match_info.route.resource
        route = "none" if resource is None else resource.canonical
        method = request.method if request.method in METHODS else "other"
        metrics.requests.labels(method, route, str(response.status)).inc()

    app.router.add_get("/metrics", answer)
    app.on_response_prepare.append(count)
    return metrics
