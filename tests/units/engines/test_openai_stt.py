"""Transcription by a server, against a fake one on loopback."""

from __future__ import annotations

import io
import socket
import wave

import numpy as np
import pytest

from tests.speech import pink_noise, silence
from tests.units.engines.fake_stt_server import Answer, FakeServer, failing, serving
from units.engines.base import EngineError, EngineSettings, EngineUnavailable, SpeechToText
from units.engines.openai_stt import OpenAITranscription, wav

KEY = "sk-very-secret"
SOUND = pink_noise(1.5, -20)


def engine(
    fake: FakeServer, *, model: str = "", language: str = "", timeout: float = 5.0
) -> OpenAITranscription:
    settings = EngineSettings("openai", model=model, base_url=fake.url, api_key=KEY, language=language)
    return OpenAITranscription(settings, timeout=timeout)


def failure(*answers: Answer, timeout: float = 5.0) -> tuple[str, FakeServer]:
    """The sentence that ``answers`` lead to."""
    with serving(*answers) as fake, pytest.raises(EngineError) as caught:
        engine(fake, timeout=timeout).transcribe(SOUND)
    return str(caught.value), fake


def test_the_text_comes_back_stripped() -> None:
    with serving() as fake:
        assert engine(fake).transcribe(SOUND).text == "Hello there."
        assert fake.paths == ["/v1/audio/transcriptions"]
        assert fake.keys == [f"Bearer {KEY}"]


def test_it_is_a_recogniser_too_slow_for_live_transcripts() -> None:
    with serving() as fake:
        stt = engine(fake)
        assert isinstance(stt, SpeechToText)
        assert not stt.live


def test_the_utterance_is_sent_as_wav_at_16_khz() -> None:
    with serving() as fake:
        engine(fake).transcribe(SOUND)
        with wave.open(io.BytesIO(fake.forms[0]["file"])) as sent:
            assert (sent.getframerate(), sent.getnchannels(), sent.getsampwidth()) == (16_000, 1, 2)
            assert sent.getnframes() == SOUND.size


@pytest.mark.parametrize(
    ("setting", "argument", "sent"),
    [("", "", None), ("de-AT", "", b"de"), ("de", "fr", b"fr"), ("", "pt_BR", b"pt")],
)
def test_the_language_is_sent_when_it_is_known(setting: str, argument: str, sent: bytes | None) -> None:
    with serving() as fake:
        engine(fake, language=setting).transcribe(SOUND, language=argument)
        assert fake.forms[0].get("language") == sent


def test_the_model_can_be_chosen() -> None:
    with serving() as fake:
        engine(fake).transcribe(SOUND)
        engine(fake, model="large").transcribe(SOUND)
        assert [form["model"] for form in fake.forms] == [b"whisper-1", b"large"]


def test_silence_is_not_sent() -> None:
    with serving() as fake:
        assert engine(fake).transcribe(silence(2)).text == ""
        assert fake.forms == []


def test_a_short_word_is_long_enough_for_the_server() -> None:
    with serving() as fake:
        engine(fake).transcribe(SOUND[:800])
        with wave.open(io.BytesIO(fake.forms[0]["file"])) as sent:
            assert sent.getnframes() >= 1600


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (failing(401, f"Incorrect API key provided: {KEY}"), "refused the API key (401)"),
        (failing(403), "refused the API key (403)"),
        (failing(404, "no such model"), "does not know the model 'whisper-1'"),
        (failing(429), "no capacity or quota"),
        (failing(400, f"bad sound from {KEY}"), "refused the request (400)"),
        (failing(500), "internal error (500)"),
        (Answer("<html>hi</html>", content_type="text/html"), "not a transcript"),
        (Answer("<html>no</html>", 502, "text/html"), "internal error (502)"),
        (Answer("{nonsense"), "not a transcript"),
        (Answer("[1]"), "not a transcript"),
        (Answer('{"hello": 1}'), "not a transcript"),
        (Answer('{"text": null}'), "not a transcript"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_failure_is_one_sentence_without_the_key(answer: Answer, words: str) -> None:
    sentence, fake = failure(answer)
    assert words in sentence
    assert fake.url.removeprefix("http://").removesuffix("/v1") in sentence
    assert KEY not in sentence
    assert "\n" not in sentence


def test_a_server_that_hangs_is_not_waited_for_twice() -> None:
    sentence, fake = failure(Answer(hang=True), timeout=0.2)
    assert "did not answer in time" in sentence
    assert len(fake.forms) == 1


def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = EngineSettings("openai", base_url=f"http://127.0.0.1:{port}/v1")
    with pytest.raises(EngineError, match="cannot be reached"):
        OpenAITranscription(settings).transcribe(SOUND)


def test_a_passing_failure_is_tried_once_more() -> None:
    with serving(failing(500), Answer()) as fake:
        assert engine(fake).transcribe(SOUND).text == "Hello there."


@pytest.mark.parametrize(("answer", "times"), [(failing(503), 2), (failing(429), 1), (failing(401), 1)])
def test_a_server_that_keeps_failing_is_left_alone(answer: Answer, times: int) -> None:
    assert len(failure(answer)[1].forms) == times


def test_openai_itself_wants_a_key() -> None:
    with pytest.raises(EngineUnavailable, match="DUOLOGUE_STT_API_KEY"):
        OpenAITranscription(EngineSettings("openai"))
    with pytest.raises(EngineUnavailable, match="DUOLOGUE_STT_API_KEY"):
        OpenAITranscription(EngineSettings("openai", base_url="https://api.openai.com/v1/"))
    OpenAITranscription(EngineSettings("openai", api_key=KEY)).close()


def test_another_server_needs_none() -> None:
    OpenAITranscription(EngineSettings("openai", base_url="http://localhost:8000/v1")).close()


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http:///v1"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(EngineUnavailable, match="--stt-base-url"):
        OpenAITranscription(EngineSettings("openai", base_url=url))


def test_too_loud_samples_are_clipped_and_do_not_wrap() -> None:
    with wave.open(io.BytesIO(wav(np.array([0, 0.5, 2, -2], np.float32)))) as file:
        assert list(np.frombuffer(file.readframes(4), "<i2")) == [0, 16384, 32767, -32767]
