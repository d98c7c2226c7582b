from __future__ import annotations

import io
import json
import threading
import wave

import numpy as np
import pytest

from tests.units.engines.fake_speech_server import Reply, serving
from units.engines.base import EngineError, EngineSettings, EngineUnavailable, TextToSpeech
from units.engines.openai_tts import MOST_CHARACTERS, OpenAISpeech, Patience
from units.messages import Float32
from units.scope import CancelScope, entered

RAMP = np.arange(-5000, 5000, dtype="<i2")
SOUND = Reply((RAMP.tobytes(),))
KEY = "sk-secret-1234"


def engine(url: str, **changes: str) -> OpenAISpeech:
    settings = {"base_url": url, "api_key": KEY, **changes}
    return OpenAISpeech(EngineSettings("openai", **settings), Patience(connect=2.0, read=0.3))  # type: ignore[arg-type]


def spoken(speech: OpenAISpeech, text: str = "Hello.", **options: object) -> Float32:
    chunks = list(speech.synthesize(text, **options))  # type: ignore[arg-type]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


def test_it_is_a_text_to_speech_engine() -> None:
    assert isinstance(engine("http://127.0.0.1:1/v1"), TextToSpeech)


def test_it_asks_for_pcm_in_the_chosen_voice() -> None:
    with serving(SOUND) as fake:
        spoken(engine(fake.url, voice="nova", model="kokoro"), "Hi there.", speed=1.5)
    assert fake.asked == [
        {
            "path": "/v1/audio/speech",
            "model": "kokoro",
            "voice": "nova",
            "input": "Hi there.",
            "response_format": "pcm",
            "speed": 1.5,
        }
    ]


@pytest.mark.parametrize("size", [1, 3, 333, 4096])
def test_samples_torn_between_blocks_are_put_together(size: int) -> None:
    body = RAMP.tobytes()[:3000]
    blocks = tuple(body[at : at + size] for at in range(0, len(body), size))
    with serving(Reply(blocks)) as fake:
        heard = spoken(engine(fake.url))
    assert heard.dtype == np.float32
    assert np.array_equal(heard, RAMP[:1500] / np.float32(32768))


def test_the_first_block_is_yielded_before_the_last_has_come() -> None:
    with serving(Reply((RAMP.tobytes(),), then="hang")) as fake:
        stream = engine(fake.url).synthesize("Hello.")
        assert len(next(stream)) > 0
        stream.close()
        assert fake.gone.wait(2)


def wav(rate: int = 24_000, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(RAMP.tobytes())
    return file.getvalue()


@pytest.mark.parametrize("size", [7, 100_000])
def test_a_wav_header_is_not_played(size: int) -> None:
    blocks = tuple(wav()[at : at + size] for at in range(0, len(wav()), size))
    with serving(Reply(blocks, content_type="audio/wav")) as fake:
        assert np.array_equal(spoken(engine(fake.url)), RAMP / np.float32(32768))


def test_a_wav_of_another_rate_is_refused() -> None:
    with serving(Reply((wav(rate=44_100),))) as fake, pytest.raises(EngineError, match="44100 Hz"):
        spoken(engine(fake.url))


@pytest.mark.parametrize("text", ["", "  ", "...", "—", "😀"])
def test_text_without_a_word_is_not_sent(text: str) -> None:
    with serving(SOUND) as fake:
        assert len(spoken(engine(fake.url), text)) == 0
    assert fake.asked == []


def test_a_long_text_is_sent_in_pieces_that_lose_nothing() -> None:
    text = "word " * 2000
    with serving(SOUND) as fake:
        spoken(engine(fake.url), text)
    assert all(len(question["input"]) <= MOST_CHARACTERS for question in fake.asked)
    assert " ".join(question["input"] for question in fake.asked).split() == text.split()


def error(status: int) -> Reply:
    body = json.dumps({"error": {"message": f"no good, {KEY}", "code": "x"}}).encode()
    return Reply((body,), status=status, content_type="application/json")


FAILURES = [
    (error(401), "refused the API key"),
    (error(404), "does not know this model"),
    (error(400), "refused the request"),
    (error(429), "no capacity"),
    (error(500), "internal error"),
    (Reply((b"<html>hi</html>",), content_type="text/html"), "text/html"),
    (Reply((b"{}",), content_type="application/json"), "application/json"),
    (Reply((b"ID3",), content_type="audio/mpeg"), "pcm"),
    (Reply(), "sent no sound"),
    (Reply(first="hang"), "in time"),
    (Reply((RAMP.tobytes(),), then="hang"), "in time"),
    (Reply((RAMP.tobytes(),), then="break"), "broke off"),
]


@pytest.mark.parametrize(("reply", "words"), FAILURES)
def test_a_failing_server_gives_one_sentence_without_the_key(reply: Reply, words: str) -> None:
    with serving(reply) as fake, pytest.raises(EngineError) as caught:
        spoken(engine(fake.url))
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1 cannot be reached"):
        spoken(engine("http://127.0.0.1:1/v1"))


def test_it_tries_once_more_when_the_server_fails_before_the_first_sound() -> None:
    with serving(error(500), SOUND) as fake:
        assert len(spoken(engine(fake.url))) == len(RAMP)
    assert len(fake.asked) == 2


def test_a_voice_that_the_server_refuses_falls_back_to_the_default_one() -> None:
    with serving(error(400), SOUND) as fake:
        spoken(engine(fake.url, voice="nova"), voice="parrot")
    assert [question["voice"] for question in fake.asked] == ["parrot", "nova"]


@pytest.mark.parametrize("reply", [Reply(first="hang"), Reply((RAMP.tobytes(),), then="hang")])
def test_cancelling_wakes_a_blocked_read_at_once(reply: Reply) -> None:
    with serving(reply) as fake:
        speech = OpenAISpeech(EngineSettings("openai", base_url=fake.url), Patience(read=60.0))
        scope, ended = CancelScope("response"), threading.Event()

        def speak() -> None:
            with entered(scope):
                list(speech.synthesize("Hello."))
            ended.set()

        thread = threading.Thread(target=speak)
        thread.start()
        assert fake.sent.wait(5)
        scope.cancel()
        assert ended.wait(2)
        thread.join()
        assert fake.gone.wait(2)


def test_without_server_and_key_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(EngineUnavailable, match="DUOLOGUE_TTS_API_KEY"):
        OpenAISpeech(EngineSettings("openai"))
