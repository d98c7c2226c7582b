"""A server with ``/v1/audio/transcriptions`` on loopback that answers from a list."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says. ``hang``: nothing at all, until the server is closed."""

    body: str = '{"text": " Hello there. "}'
    status: int = 200
    content_type: str = "application/json"
    hang: bool = False


def failing(status: int, message: str = "no") -> Answer:
    """An answer in OpenAI's error format."""
    return Answer(json.dumps({"error": {"message": message, "type": "error"}}), status)


@dataclass(slots=True)
class FakeServer:
    """Answers in order, the last one for ever, and keeps what it was asked."""

    url: str
    answers: list[Answer]
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    forms: list[dict[str, bytes]] = field(default_factory=list)

    def next_answer(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(*answers: Answer) -> Iterator[FakeServer]:
    """A running server."""
    closing = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            fake.paths.append(self.path)
            fake.keys.append(self.headers["Authorization"])
            fake.forms.append(_form(self.headers["Content-Type"], body))
            answer = fake.next_answer()
            if answer.hang:
                closing.wait()
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body.encode())))
            self.end_headers()
            self.wfile.write(answer.body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake = FakeServer(f"http://127.0.0.1:{http.server_port}/v1", list(answers) or [Answer()])
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        closing.set()
        http.shutdown()
        thread.join()
        http.server_close()


def _form(content_type: str, body: bytes) -> dict[str, bytes]:
    message = BytesParser().parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    form: dict[str, bytes] = {}
    for part in message.walk():
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(payload, bytes):
            form[name] = payload
    return form
