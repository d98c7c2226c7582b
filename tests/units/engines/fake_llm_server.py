"""A language model server on loopback that misbehaves on request: the counterpart of the HTTP engines."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Behaviour = Callable[["Exchange"], None]


class Exchange(BaseHTTPRequestHandler):
    """One request and the ways to answer it."""

    protocol_version = "HTTP/1.1"
    server: _Server  # type: ignore[assignment]
    body: Body

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Body) -> None:
        self.body = body
        fake = self.server.fake
        fake.requests.append((self.path, body))
        fake.keys.append(self.headers.get("Authorization", ""))
        try:
            if self.command == "GET":
                self.whole(
                    200, {"object": "list", "data": [{"id": name, "object": "model"} for name in fake.models]}
                )
            else:
                fake.behaviours[min(len(fake.posts), len(fake.behaviours)) - 1](self)
        except OSError:
            fake.hung_up.set()
            self.close_connection = True

    def whole(self, status: int, body: object, content_type: str = "application/json") -> None:
        """Answer in one piece."""
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def begin(self) -> None:
        """Begin a stream of server-sent events."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def begin_unframed(self) -> None:
        """Begin a stream that ends where the connection ends."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def raw(self, text: str) -> None:
        self.wfile.write(f"{len(text.encode()):x}\r\n".encode() + text.encode() + b"\r\n")
        self.wfile.flush()

    def event(self, data: Body | str, name: str = "") -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.raw((f"event: {name}\n" if name else "") + f"data: {text}\n\n")

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def wait_for_the_client_to_leave(self) -> None:
        """Say nothing until the client closes the connection."""
        self.server.fake.stalled.set()
        if self.rfile.read(1) == b"":
            self.server.fake.hung_up.set()
        self.close_connection = True

    def reset(self) -> None:
        """Break the connection off."""
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@dataclass
class FakeServer:
    """What the server was asked, and how it is to answer: one behaviour a request, the last one for ever."""

    behaviours: list[Behaviour]
    models: list[str] = field(default_factory=lambda: ["first-model", "second-model"])
    url: str = ""
    requests: list[tuple[str, Body]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    connections: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)

    @property
    def posts(self) -> list[Body]:
        return [body for _, body in self.requests if body]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    fake: FakeServer

    def process_request(self, request: Any, client_address: Any) -> None:
        self.fake.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error here."""


@contextmanager
def serving(*behaviours: Behaviour) -> Iterator[FakeServer]:
    """Run the server; each request is answered by the next behaviour."""
    fake = FakeServer(list(behaviours))
    with _Server(("127.0.0.1", 0), Exchange) as server:
        server.fake = fake
        fake.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()


def chunk(delta: Body | None = None, finish: str | None = None, **more: object) -> Body:
    """A chat completion chunk."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    choices = [] if delta is None and finish is None else [choice]
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "m",
        "choices": choices,
        **more,
    }


def chat(*chunks: Body) -> Behaviour:
    """Stream ``chunks`` as a proper chat completion."""

    def answer(exchange: Exchange) -> None:
        exchange.begin()
        for each in chunks:
            exchange.event(each)
        exchange.event("[DONE]")
        exchange.end()

    return answer


def failing(status: int, message: str = "no") -> Behaviour:
    """Answer with an error."""
    return lambda exchange: exchange.whole(status, {"error": {"message": message, "type": "error"}})


HELLO = chat(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo."}),
    chunk({}, "stop"),
    chunk(
        usage={
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 3},
        }
    ),
)
