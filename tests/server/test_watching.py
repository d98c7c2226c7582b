"""A real server: its log as JSON, and its traces at a real receiver."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiohttp import ClientSession
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from server.tracing import FLUSH_S
from tests.e2e.serving import READY, SCRIPTED, Served, serving
from tests.server.fakes import Client, ToneTrack

pytestmark = pytest.mark.e2e

Json = dict[str, Any]
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


class Receiver:
    """An OTLP/HTTP receiver on loopback."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        received = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        return Handler

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> list[Span]:
        resources = [each for request in self.requests for each in request.resource_spans]
        return [span for each in resources for scope in each.scope_spans for span in scope.spans]

    def one(self, name: str) -> Span:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def attribute(span: Span, key: str) -> str:
    return next((each.value.string_value for each in span.attributes if each.key == key), "")


def written(text: str) -> list[Json]:
    """A turn in writing, as client events."""
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    return [{"type": "conversation.item.create", "item": item}, {"type": "response.create"}]


async def over_websocket(url: str, text: str, **headers: str) -> Json:
    """A session with one written turn: its ``session`` and its ``response``."""
    found: Json = {}
    async with (
        ClientSession(url) as http,
        http.ws_connect("/v1/realtime?model=m", headers=headers) as client,
        asyncio.timeout(20),
    ):
        for event in written(text):
            await client.send_json(event)
        async for message in client:
            event = json.loads(message.data)
            if event["type"] == "session.created":
                found["session"] = event["session"]
            if event["type"] == "response.done":
                return {**found, "response": event["response"]}
    raise AssertionError("the server hung up")


async def over_webrtc(url: str, text: str) -> Json:
    """The same, as a call; and its ``call_id``."""
    client, microphone, found = Client(), ToneTrack(), Json()
    microphone.level = 0
    try:
        async with ClientSession(url, headers=TRACEPARENT) as http:
            await client.add_audio(microphone).add_channel(*written(text)).call(http)
            while "response" not in found:
                event = await client.next_event()
                if event["type"] == "session.created":
                    found["session"] = event["session"]
                if event["type"] == "response.done":
                    found["response"] = event["response"]
            found["call_id"] = client.location.rpartition("/")[2]
            async with http.delete(client.location) as hung_up:
                assert hung_up.status == 204
            return found
    finally:
        await client.close()


async def test_every_line_of_a_call_has_its_ids_also_when_an_engine_fails() -> None:
    secret = "Tell nobody about the blue house"
    with serving(*SCRIPTED, "--log-format", "json") as served:
        call = await over_webrtc(served.url, f"{secret} [[fail]]")
        client = await over_websocket(served.url, f"{secret} [[fail]]")
    lines = [json.loads(line) for line in served.lines if line.startswith("{")]
    people = [line for line in served.lines if not line.startswith("{")]
    assert [line for line in people if not line.startswith(("Loading ", READY, "Stopping"))] == []
    for line in lines:
        assert set(line) >= {"time", "level", "logger", "message"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert secret not in "\n".join(served.lines)
    assert "a=ice-pwd" not in "\n".join(served.lines)

    for found, prefix in ((call, "rtc_"), (client, "ws_")):
        session, response = found["session"]["id"], found["response"]["id"]
        of_session = [line for line in lines if line.get("session") == session]
        ids = {line["call"] for line in of_session}
        assert len(ids) == 1
        id = ids.pop()
        assert id.startswith(prefix)
        assert id == found.get("call_id", id)
        failed = [line for line in of_session if "stage llm failed" in line["message"]]
        assert [(line["level"], line["call"], line["turn"]) for line in failed] == [("warning", id, response)]
        begins, ends = [
            line
            for line in lines
            if line.get("call") == id
            and " call " in f" {line['message']} "
            and line["logger"] == "server.call_log"
        ]
        assert "begins" in begins["message"]
        assert (ends["turns"], ends["session"]) == (1, session)
        assert ends["duration_s"] > 0
        assert ends["reason"]
    of_peers = [line for line in lines if line["logger"] == "server.peer"]
    assert {line.get("call") for line in of_peers} == {call["call_id"]}


async def test_a_call_is_a_trace_that_continues_the_clients(receiver: Receiver) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "60000"}
    with serving(*SCRIPTED, environment=environment) as served:
        found = await over_websocket(served.url, "hello", **TRACEPARENT)
    call, turn, llm = receiver.one("call"), receiver.one("turn"), receiver.one("llm")
    assert call.trace_id.hex() == TRACE
    assert call.parent_span_id.hex() == "b7ad6b7169203331"
    assert (turn.parent_span_id, llm.parent_span_id) == (call.span_id, turn.span_id)
    assert attribute(call, "duologue.session.id") == found["session"]["id"]
    assert attribute(turn, "duologue.response.id") == found["response"]["id"]
    assert attribute(llm, "gen_ai.provider.name") == "scripted"
    assert [span for span in receiver.spans if span.name == "tts"]
    resource = receiver.requests[0].resource_spans[0].resource
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "duologue"


async def test_a_webrtc_call_is_one_too_and_the_operator_names_the_service(receiver: Receiver) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_SERVICE_NAME": "voice"}
    with serving(*SCRIPTED, environment=environment) as served:
        found = await over_webrtc(served.url, "hello")
    call = receiver.one("call")
    assert call.trace_id.hex() == TRACE
    assert attribute(call, "duologue.call.id") == found["call_id"]
    assert attribute(call, "duologue.end_reason") == "hung up over HTTP"
    resource = receiver.requests[0].resource_spans[0].resource
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "voice"


async def test_a_collector_that_is_gone_holds_up_neither_a_call_nor_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with serving(*SCRIPTED, environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}) as served:
            answered = await _both(served)
            began = time.monotonic()
            served.stop()
        assert time.monotonic() - began < FLUSH_S + 5
    assert answered == ["completed", "completed"]


async def _both(served: Served) -> list[str]:
    found = [await over_websocket(served.url, "hello"), await over_websocket(served.url, "hello again")]
    return [each["response"]["status"] for each in found]
