"""A loopback server with ``/v1/audio/speech`` that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What to answer: a status, a type, blocks of body, and what to do after them."""

    blocks: tuple[bytes, ...] = ()
    status: int = 200
    content_type: str = "audio/pcm"
    then: str = "end"
    """``end``, ``break`` (cut the connection) or ``hang`` (send nothing more)."""
    first: str = ""
    """``hang``: do not even answer."""


@dataclass
class FakeSpeech:
    """Replies in order, the last one again and again, and what was asked."""

    url: str
    replies: list[Reply]
    asked: list[dict[str, Any]] = field(default_factory=list)
    sent: threading.Event = field(default_factory=threading.Event)
    """Set once a reply has sent its blocks, or hangs."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when the client has closed a connection that hung."""


@contextmanager
def serving(*replies: Reply) -> Iterator[FakeSpeech]:
    """A running server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            fake.asked.append({"path": self.path, **json.loads(body)})
            reply = fake.replies.pop(0) if len(fake.replies) > 1 else fake.replies[0]
            if reply.first != "hang":
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for block in reply.blocks:
                    self.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
            fake.sent.set()
            if "hang" in (reply.then, reply.first):
                self.rfile.read(1)
                fake.gone.set()
                self.close_connection = True
            elif reply.then == "break":
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            """Nothing: tests read what was asked."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake = FakeSpeech(f"http://127.0.0.1:{server.server_port}/v1", list(replies))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
