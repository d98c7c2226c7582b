"""Speech to text by any server with OpenAI's ``/v1/audio/transcriptions``.

The utterance is sent as a WAV file. One more try when the server cannot be reached or fails; none when
it says that it is busy, since the caller would have to wait for it.
"""

from __future__ import annotations

import io
import logging
import wave
from ipaddress import ip_address
from urllib.parse import urlsplit

import numpy as np
import openai

from units.engines import whisper_guard as guard
from units.engines.base import EngineError, EngineSettings, EngineUnavailable, Transcription
from units.messages import EAR_RATE, Float32

logger = logging.getLogger(__name__)

HOSTED = "https://api.openai.com/v1"
HOSTED_MODEL = "gpt-4o-mini-transcribe"
LOCAL_MODEL = "whisper-1"
"""What servers that know one model take for it."""


class OpenAITranscription:
    """A recogniser behind HTTP. Constructing it talks to nobody.

    ``settings.base_url`` up to and including ``/v1``; empty means OpenAI, which wants a key. The
    client may be used from many threads; an answer is waited for ``timeout`` seconds.
    """

    live = False

    def __init__(self, settings: EngineSettings, *, timeout: float = 20.0) -> None:
        url = settings.base_url or HOSTED
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise EngineUnavailable(
                "The base URL of the speech recogniser "
                "(--stt-base-url) must look like http://localhost:8000/v1."
            )
        self._host = parts.netloc.rpartition("@")[2]
        hosted = self._host == urlsplit(HOSTED).netloc
        if hosted and not settings.api_key:
            raise EngineUnavailable(
                "Speech recognition by OpenAI needs an API key: set DUOLOGUE_STT_API_KEY, "
                "or give the address of another server with --stt-base-url."
            )
        self._key = settings.api_key
        self._model = settings.model or (HOSTED_MODEL if hosted else LOCAL_MODEL)
        self._language = settings.language
        limits = openai.Timeout(timeout, connect=min(5.0, timeout))
        self._client = openai.OpenAI(
            base_url=url,
            api_key=self._key or "none",
            organization="",
            project="",
            timeout=limits,
            max_retries=0,
            http_client=openai.DefaultHttpxClient(trust_env=not _is_loopback(parts.hostname), timeout=limits),
        )

    def transcribe(self, samples: Float32, *, language: str = "") -> Transcription:
        """The words in ``samples``, float32 mono at 16 kHz of any length; silence is not sent.

        Raises EngineError with one sentence that never contains the key.
        """
        spoken = _iso_639_1(language or self._language)
        if guard.silent(samples):
            return Transcription("", spoken or None)
        sound = wav(guard.padded(samples))
        try:
            text = self._twice(sound, spoken)
        except (openai.OpenAIError, ValueError) as error:
            raise EngineError(self._sentence(error)) from error
        return Transcription(text.strip(), spoken or None)

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def _twice(self, sound: bytes, language: str) -> str:
        try:
            return self._once(sound, language)
        except openai.APITimeoutError:
            raise
        except (openai.APIConnectionError, openai.InternalServerError) as error:
            logger.info("Trying %s once more after %s", self._host, type(error).__name__)
        return self._once(sound, language)

    def _once(self, sound: bytes, language: str) -> str:
        answer = self._client.audio.transcriptions.create(
            file=("speech.wav", sound, "audio/wav"),
            model=self._model,
            language=language or openai.omit,
            response_format="json",
        )
        # The package hands on what it cannot parse: a page is a str, a foreign object has no text.
        text = getattr(answer, "text", None)
        if not isinstance(text, str):
            raise ValueError("the answer holds no text")
        return text

    def _sentence(self, error: Exception) -> str:
        """One sentence for people about ``error``."""
        where = f"The speech recogniser at {self._host}"
        match error:
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                return f"{where} refused the API key ({error.status_code}); check DUOLOGUE_STT_API_KEY."
            case openai.NotFoundError():
                return (
                    f"{where} does not know the model {self._model!r} or this address (404); "
                    "check --stt-model and --stt-base-url."
                )
            case openai.RateLimitError():
                return f"{where} has no capacity or quota left for now (429)."
            case openai.InternalServerError():
                return f"{where} had an internal error ({error.status_code})."
            case openai.APIStatusError():
                return f"{where} refused the request ({error.status_code}): {self._quoted(error.message)}"
            case openai.APITimeoutError():
                return f"{where} did not answer in time."
            case openai.APIConnectionError():
                return f"{where} cannot be reached; is it running?"
            case _:
                return f"{where} sent something that is not a transcript; check --stt-base-url."

    def _quoted(self, message: str) -> str:
        text = " ".join(message.split())
        text = text.replace(self._key, "***") if self._key else text
        return text if len(text) <= 200 else f"{text[:199]}…"


def wav(samples: Float32) -> bytes:
    """A WAV file, 16 bit mono at 16 kHz, of ``samples`` in [-1, 1]; what is beyond is clipped."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(EAR_RATE)
        writer.writeframes(np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def _iso_639_1(language: str) -> str:
    return language.replace("_", "-").partition("-")[0].lower()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
