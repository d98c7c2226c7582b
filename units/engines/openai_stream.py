"""Streams from an OpenAI-compatible server that a caller can cancel and that never hang.

A read that blocks in one thread is not woken by closing the stream in another, only by shutting its
socket down. So each request has a client to itself, and the socket is noted when it connects. The same
handle ends a stream that has gone quiet: a read timeout would not do, since servers send comments to
keep a connection open while nothing happens. (The ``openai`` package closes a connection when its
stream ends, so there is none to keep for the next request.)

Every failure leaves here as an :class:`EngineError` with one sentence that never contains the key.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai
from openai import OpenAI, Stream

from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.scope import current_scope

logger = logging.getLogger(__name__)

T = TypeVar("T")

HOSTED = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server, in seconds."""

    connect: float = 5.0
    first: float = 60.0
    """For the first event of an answer."""
    between: float = 30.0
    """Between two events of an answer."""


class Connection:
    """A client of the server, used by one request at a time, and the socket it is connected by."""

    def __init__(self, make_client: Callable[[Callable[[Any], None]], OpenAI]) -> None:
        self._socket: socket.socket | None = None
        self._broken = threading.Event()
        self.client = make_client(self._watch)

    @property
    def broken(self) -> bool:
        """Whether :meth:`shut_down` was called: this connection is not to be used again."""
        return self._broken.is_set()

    def shut_down(self) -> None:
        """Wake whoever reads from the connection, with an error. From any thread; does not block."""
        self._broken.set()
        if self._socket is not None:
            _shut_down(self._socket)

    def close(self) -> None:
        self.client.close()

    def _watch(self, request: Any) -> None:
        """Have the HTTP library tell of the socket as it connects."""
        request.extensions["trace"] = self._note

    def _note(self, event: str, details: dict[str, Any]) -> None:
        stream = details.get("return_value")
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")) and stream is not None:
            self._socket = stream.get_extra_info("socket")
            if self.broken and self._socket is not None:
                _shut_down(self._socket)


class Watchdog:
    """Calls ``bark`` once unless it is fed in time. Its thread lives as long as one request."""

    def __init__(self, bark: Callable[[], None], seconds: float) -> None:
        self.barked = False
        self._bark = bark
        self._seconds: float | None = seconds
        self._fed = threading.Condition()
        self._meals = 0
        threading.Thread(target=self._run, name="llm-watchdog", daemon=True).start()

    def feed(self, seconds: float | None) -> None:
        """Wait ``seconds`` from now; None: for ever, and end the thread."""
        with self._fed:
            self._seconds, self._meals = seconds, self._meals + 1
            self._fed.notify()

    def _fed_since(self, meals: int) -> bool:
        return self._meals != meals

    def _run(self) -> None:
        with self._fed:
            while self._seconds is not None:
                meals = self._meals
                if not self._fed.wait_for(partial(self._fed_since, meals), self._seconds):
                    self.barked = True
                    self._bark()
                    return


@cache
def _trusted() -> ssl.SSLContext:
    """Whom the system trusts; reading that takes a twentieth of a second."""
    return ssl.create_default_context()


class Server:
    """An OpenAI-compatible server: its address, its key, and clients waiting for their next request."""

    def __init__(self, settings: EngineSettings, patience: Patience, *, loopback: bool = False) -> None:
        self._url = settings.base_url or HOSTED
        self._key = settings.api_key or (
            os.environ.get("OPENAI_API_KEY", "") if not settings.base_url else ""
        )
        if not self._key and not settings.base_url:
            raise EngineUnavailable(
                f"The language model {settings.name!r} needs the base URL of a server (--llm-base-url) "
                "or an API key for OpenAI (DUOLOGUE_LLM_API_KEY)."
            )
        self.host = urlsplit(self._url).netloc.rpartition("@")[2] or self._url
        self.hosted = self.host == urlsplit(HOSTED).netloc
        self._patience = patience
        self._trust_env = not loopback
        self._tls = _trusted()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()

    def stream(self, open_stream: Callable[[OpenAI], Stream[T]]) -> Iterator[T]:
        """The events of the stream that ``open_stream`` opens.

        Tries once more when the server fails before the first event. Closing the iterator, or
        cancelling the ambient scope, closes the connection. Raises EngineError.
        """
        for attempt in (1, 2):
            started = False
            try:
                for event in self._attempt(open_stream):
                    started = True
                    yield event
                return
            except (openai.APIConnectionError, openai.InternalServerError) as error:
                if started or attempt == 2 or current_scope().cancelled or _is_timeout(error):
                    raise self._failure(error) from error
                logger.info("Trying %s once more after %s", self.host, type(error).__name__)
            except (openai.OpenAIError, ValueError) as error:
                raise self._failure(error) from error

    def ask(self, question: Callable[[OpenAI], T]) -> T:
        """The answer to a small request, such as a list of models. Raises EngineError."""
        try:
            with self._borrowed() as connection:
                return question(connection.client)
        except (openai.OpenAIError, ValueError) as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Break off every answer that is still coming, and close what is idle."""
        for connection in tuple(self._busy):
            connection.shut_down()
        while self._idle:
            self._idle.pop().close()

    def _attempt(self, open_stream: Callable[[OpenAI], Stream[T]]) -> Iterator[T]:
        with self._borrowed() as connection:
            watchdog = Watchdog(connection.shut_down, self._patience.first)
            scope, events = current_scope(), 0
            scope.on_cancel(connection.shut_down)
            try:
                with open_stream(connection.client) as stream:
                    _refuse_pages(stream, self.host)
                    for event in stream:
                        watchdog.feed(self._patience.between)
                        events += 1
                        yield event
            except openai.APIConnectionError as error:
                if scope.cancelled:
                    return
                if watchdog.barked:
                    raise self._silence(events) from error
                raise
            finally:
                scope.forget(connection.shut_down)
                watchdog.feed(None)

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        """A connection for one request; it goes back unless the request was broken off."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = Connection(self._client)
        done = False
        self._busy.add(connection)
        try:
            yield connection
            done = not connection.broken
        finally:
            self._busy.discard(connection)
            if done:
                self._idle.append(connection)
            else:
                connection.close()

    def _client(self, watch: Callable[[Any], None]) -> OpenAI:
        # The watchdog comes first; this one covers requests that have none.
        timeout = openai.Timeout(self._patience.first + 5.0, connect=self._patience.connect)
        http = openai.DefaultHttpxClient(
            verify=self._tls, trust_env=self._trust_env, timeout=timeout, event_hooks={"request": [watch]}
        )
        return OpenAI(
            base_url=self._url,
            api_key=self._key or "none",
            organization="",
            project="",
            http_client=http,
            timeout=timeout,
            max_retries=0,
        )

    def _silence(self, events: int) -> EngineError:
        if events:
            return EngineError(
                f"The language model at {self.host} stopped in the middle of its answer "
                f"for {self._patience.between:g} s."
            )
        return EngineError(
            f"The language model at {self.host} gave no answer within {self._patience.first:g} s."
        )

    def _failure(self, error: Exception) -> EngineError:
        return EngineError(_sentence(error, self.host, self._key))


def _sentence(error: Exception, host: str, key: str) -> str:
    """One sentence for people about ``error``; the server's own words only where they help."""
    where = f"The language model at {host}"
    match error:
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return f"{where} refused the API key ({error.status_code}); check DUOLOGUE_LLM_API_KEY."
        case openai.RateLimitError():
            return f"{where} has no capacity or quota left for now (429)."
        case openai.NotFoundError():
            return (
                f"{where} does not know this model or address (404); check the model's name and the base URL."
            )
        case openai.InternalServerError():
            return f"{where} had an internal error ({error.status_code})."
        case openai.APIStatusError():
            return f"{where} refused the request ({error.status_code}): {_quoted(error.message, key)}"
        case openai.APITimeoutError():
            return f"{where} did not answer in time."
        case openai.APIConnectionError():
            broke = "Connection error" not in str(error) or _was_connected(error)
            return (
                f"{where} broke off the connection."
                if broke
                else f"{where} cannot be reached; is it running?"
            )
        case openai.APIError():
            return f"{where} reported an error: {_quoted(error.message, key)}"
        case _:
            return f"{where} sent something that is not an answer; check the base URL."


def _quoted(message: str, key: str) -> str:
    """``message`` on one line of at most 200 characters, without the key."""
    text = " ".join(message.split())
    if key:
        text = text.replace(key, "***")
    return text if len(text) <= 200 else f"{text[:199]}…"


def _is_timeout(error: openai.APIError) -> bool:
    return isinstance(error, openai.APITimeoutError)


def _was_connected(error: openai.APIConnectionError) -> bool:
    return type(error.__cause__).__name__ not in {"ConnectError", "ProxyError", "UnsupportedProtocol"}


def _refuse_pages(stream: Stream[Any], host: str) -> None:
    """Raise EngineError when the answer is a web page (a proxy's, or that of a wrong address)."""
    if "text/html" in stream.response.headers.get("content-type", ""):
        raise EngineError(f"The language model at {host} answered with a web page; check the base URL.")


def _shut_down(connected: socket.socket) -> None:
    try:
        # Not SSLSocket.shutdown, which takes the TLS state away from under a reading thread.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        logger.debug("The connection was closed already")
