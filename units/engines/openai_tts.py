"""Speech from any server with OpenAI's ``POST /v1/audio/speech``, streamed as raw PCM.

The body is int16 little-endian mono at 24 kHz, in blocks of any length: a sample may be torn between
two of them. Some servers put a WAV header before it. Reference:
https://platform.openai.com/docs/api-reference/audio/createSpeech.
"""

from __future__ import annotations

import logging
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import openai
from openai import OpenAI

from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.engines.openai_stream import HOSTED, Connection
from units.messages import Float32
from units.scope import current_scope

logger = logging.getLogger(__name__)

SAMPLE_RATE = 24_000
"""Hz, of ``response_format=pcm``."""
MOST_CHARACTERS = 4096
"""Longest input that OpenAI takes."""
SPEEDS = (0.25, 4.0)
DEFAULT_VOICE = "alloy"
HOSTED_MODEL, OTHER_MODEL = "gpt-4o-mini-tts", "tts-1"

# The HTTP library's errors reach us bare while a body is read; openai decides which library that is.
_Client = next(kind for kind in openai.DefaultHttpxClient.__mro__ if kind.__name__ == "Client")
_BodyError: type[Exception] = sys.modules[_Client.__module__].HTTPError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the server, in seconds."""

    connect: float = 5.0
    read: float = 20.0
    """For the first sound, and between two blocks of it."""


class OpenAISpeech:
    """A voice behind an OpenAI-compatible server."""

    sample_rate = SAMPLE_RATE

    def __init__(self, settings: EngineSettings, patience: Patience = Patience()) -> None:
        self._key = settings.api_key or ("" if settings.base_url else os.environ.get("OPENAI_API_KEY", ""))
        if not (self._key or settings.base_url):
            raise EngineUnavailable(
                "The speech engine 'openai' needs the base URL of a server (--tts-base-url) or an API key "
                "for OpenAI (DUOLOGUE_TTS_API_KEY)."
            )
        self._url = settings.base_url or HOSTED
        self._host = urlsplit(self._url).netloc.rpartition("@")[2] or self._url
        self._model = settings.model or (OTHER_MODEL if settings.base_url else HOSTED_MODEL)
        self._voice = settings.voice or DEFAULT_VOICE
        self._patience = patience
        self._idle: list[Connection] = []
        self.voices: tuple[str, ...] = ()

    def synthesize(self, text: str, *, voice: str = "", speed: float = 1.0) -> Iterator[Float32]:
        """Yield float32 mono at 24 kHz as it arrives. Raises EngineError."""
        voice = voice if voice not in ("", "default") else self._voice
        for piece in _pieces(text):
            yield from self._speak(piece, voice, min(max(speed, SPEEDS[0]), SPEEDS[1]))

    def _speak(self, text: str, voice: str, speed: float) -> Iterator[Float32]:
        """One request; again with the default voice, or when the server fails before the first sound."""
        for attempt in (1, 2):
            started = False
            try:
                for sound in self._request(text, voice, speed):
                    started = True
                    yield sound
            except openai.BadRequestError as error:
                if voice == self._voice or attempt == 2:
                    raise EngineError(self._sentence(error)) from error
                logger.info("%s refused voice %r; using %r", self._host, voice, self._voice)
                voice = self._voice
            except (openai.APIConnectionError, openai.InternalServerError, _BodyError) as error:
                if current_scope().cancelled:
                    return
                if started or attempt == 2 or _is_timeout(error):
                    raise EngineError(self._sentence(error)) from error
                logger.info("Trying %s once more after %s", self._host, type(error).__name__)
            except (openai.OpenAIError, ValueError) as error:
                raise EngineError(self._sentence(error)) from error
            else:
                if not started and not current_scope().cancelled:
                    raise EngineError(f"The speech server at {self._host} sent no sound.")
                return

    def _request(self, text: str, voice: str, speed: float) -> Iterator[Float32]:
        options: dict[str, Any] = {} if speed == 1.0 else {"speed": speed}
        with self._connected() as connection:
            create = connection.client.audio.speech.with_streaming_response.create
            with create(
                model=self._model, voice=voice, input=text, response_format="pcm", **options
            ) as response:
                self._require_sound(response.headers.get("content-type", ""))
                for block in _without_header(response.iter_bytes(), self._host):
                    yield np.frombuffer(block, "<i2").astype(np.float32) / 32768.0

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection for one request, shut down when the ambient scope is cancelled."""
        scope = current_scope()
        connection = self._idle.pop() if self._idle else Connection(self._client)
        done = False
        scope.on_cancel(connection.shut_down)
        try:
            yield connection
            done = not connection.broken
        finally:
            scope.forget(connection.shut_down)
            if done:
                self._idle.append(connection)
            else:
                connection.close()

    def _client(self, watch: Any) -> OpenAI:
        timeout = openai.Timeout(self._patience.read, connect=self._patience.connect)
        http = openai.DefaultHttpxClient(timeout=timeout, event_hooks={"request": [watch]})
        return OpenAI(
            base_url=self._url,
            api_key=self._key or "none",
            http_client=http,
            timeout=timeout,
            max_retries=0,
        )

    def _require_sound(self, content_type: str) -> None:
        kind = content_type.partition(";")[0].strip().lower()
        if kind.startswith("text/") or "json" in kind:
            raise EngineError(
                f"The speech server at {self._host} answered with {kind}, not sound; check the base URL."
            )
        if kind in ("audio/mpeg", "audio/mp3", "audio/ogg", "audio/opus", "audio/flac", "audio/aac"):
            raise EngineError(
                f"The speech server at {self._host} sent {kind}; a server that can stream pcm is needed."
            )

    def _sentence(self, error: Exception) -> str:
        """One sentence for people; the server's own words only where they help, the key never."""
        where = f"The speech server at {self._host}"
        match error:
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                return f"{where} refused the API key ({error.status_code}); check DUOLOGUE_TTS_API_KEY."
            case openai.RateLimitError():
                return f"{where} has no capacity or quota left for now (429)."
            case openai.NotFoundError():
                return f"{where} does not know this model or address (404); check the model and the base URL."
            case openai.InternalServerError():
                return f"{where} had an internal error ({error.status_code})."
            case openai.APIStatusError():
                return f"{where} refused the request ({error.status_code}): {self._quoted(error.message)}"
            case _ if _is_timeout(error):
                return f"{where} did not answer in time."
            case openai.APIConnectionError() if type(error.__cause__).__name__ == "ConnectError":
                return f"{where} cannot be reached; is it running?"
            case openai.APIConnectionError() | _BodyError():
                return f"{where} broke off the connection."
            case _:
                return f"{where} sent something that is not speech; check the base URL."

    def _quoted(self, message: str) -> str:
        text = " ".join(message.split())
        if self._key:
            text = text.replace(self._key, "***")
        return text if len(text) <= 200 else f"{text[:199]}…"


def _is_timeout(error: Exception) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, openai.APITimeoutError) or "TimeoutException" in names


def _pieces(text: str) -> Iterator[str]:
    """``text`` in pieces that OpenAI takes; none when there is nothing to pronounce."""
    text = text.strip()
    while len(text) > MOST_CHARACTERS:
        cut = text.rfind(" ", 1, MOST_CHARACTERS + 1)
        cut = cut if cut > 0 else MOST_CHARACTERS
        yield text[:cut]
        text = text[cut:].lstrip()
    if any(character.isalnum() for character in text):
        yield text


def _without_header(blocks: Iterable[bytes], host: str) -> Iterator[bytes]:
    """Whole int16 samples, without the WAV header that some servers put before them. Raises EngineError."""
    kept, header = b"", True
    for block in blocks:
        kept += block
        if header:
            start = _sound_start(kept, host)
            if start is None:
                continue
            kept, header = kept[start:], False
        whole = len(kept) & ~1
        if whole:
            yield kept[:whole]
            kept = kept[whole:]
    if header and len(kept) > 1 and not kept.startswith(b"RIFF"):
        yield kept[: len(kept) & ~1]


def _sound_start(beginning: bytes, host: str) -> int | None:
    """Where samples begin: 0 without a WAV header, None until there is enough to tell."""
    if not b"RIFF".startswith(beginning[:4]):
        return 0
    place = 12
    while len(beginning) >= place + 8:
        name, size = struct.unpack_from("<4sI", beginning, place)
        if name == b"data":
            return place + 8
        if name == b"fmt " and len(beginning) >= place + 24:
            _, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", beginning, place + 8)
            if (channels, rate, bits) != (1, SAMPLE_RATE, 16):
                raise EngineError(
                    f"The speech server at {host} sends {rate} Hz, {channels} channels, {bits} bits; "
                    f"{SAMPLE_RATE} Hz mono of 16 bits is needed."
                )
        place += 8 + size + size % 2
    return None
