"""The scripted engines: what other tests and benchmarks count on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from units.engines.base import EngineError, EngineSettings
from units.engines.registry import load
from units.engines.scripted import (
    ANSWER,
    HEARD,
    LONG_ANSWER,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedTurn,
    ScriptedVad,
)
from units.messages import Finish, Float32, Generate, Message, Token, Tool, ToolCall, ToolResult

SETTINGS = EngineSettings("scripted")
WEATHER = Tool(
    "get_weather",
    "Weather of a city",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "note": {"type": "string"},
            },
        }
    ),
)


def tone(dbfs: float, samples: int = 512) -> Float32:
    """A sine of the given RMS level at 16 kHz."""
    amplitude = np.sqrt(2) * 10 ** (dbfs / 20)
    return (amplitude * np.sin(2 * np.pi * 500 * np.arange(samples) / 16_000)).astype(np.float32)


def ask(text: str, **more: object) -> Generate:
    return Generate(history=(Message("user", text),), **more)  # type: ignore[arg-type]


def run(request: Generate) -> list[Token | ToolCall | Finish]:
    return list(ScriptedLLM(SETTINGS).generate(request))


def said(request: Generate) -> str:
    return "".join(item.text for item in run(request) if isinstance(item, Token))


@pytest.mark.parametrize("kind", ["vad", "turn", "stt", "llm", "tts"])
def test_the_registry_loads_a_scripted_engine_of_every_kind(kind: str) -> None:
    assert type(load(kind, SETTINGS)).__name__.startswith("Scripted")


@pytest.mark.parametrize(("dbfs", "probability"), [(-40, 1.0), (-50, 0.0), (-200, 0.0)])
def test_the_detector_hears_speech_above_minus_45_dbfs(dbfs: float, probability: float) -> None:
    assert ScriptedVad(SETTINGS).open().probability(tone(dbfs)) == probability


def test_the_detector_refuses_a_chunk_of_another_size() -> None:
    with pytest.raises(ValueError, match="512"):
        ScriptedVad(SETTINGS).open().probability(np.zeros(160, np.float32))


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        (tone(-50, 16_000), HEARD),
        (tone(-70, 16_000), ""),
        (np.zeros(16_000, np.float32), ""),
        (np.zeros(0, np.float32), ""),
    ],
)
def test_the_recogniser_understands_sound_but_not_silence(samples: Float32, text: str) -> None:
    assert ScriptedSTT(SETTINGS).transcribe(samples).text == text


@pytest.mark.parametrize(
    ("sounds", "finished"),
    [
        ([tone(-10, 8_000), np.zeros(2_000, np.float32)], 1.0),
        ([tone(-10, 8_000), tone(-30, 4_000), np.zeros(2_000, np.float32)], 0.0),
        ([tone(-30, 8_000), tone(-10, 4_000)], 1.0),
        ([tone(-50, 8_000)], 0.0),
        ([np.zeros(100, np.float32)], 0.0),
        ([np.zeros(0, np.float32)], 0.0),
    ],
)
def test_who_falls_silent_at_full_voice_has_finished(sounds: list[Float32], finished: float) -> None:
    assert ScriptedTurn(SETTINGS).finished(np.concatenate(sounds)) == finished


def test_the_plain_answer_has_44_characters_and_ends_with_a_period() -> None:
    assert said(ask("Anything?")) == ANSWER
    assert len(ANSWER) == 44
    assert ANSWER.endswith(".")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("please [[long]]", LONG_ANSWER),
        ("[[echo:Say  this, [exactly] this.]]", "Say  this, [exactly] this."),
        ("[[echo:]]", ""),
        ("[[echo: ]]", " "),
        ("[[echo:the weather]]", "the weather"),
        ("how is the weather", ANSWER),
    ],
)
def test_the_answer_follows_what_the_user_asked_for(text: str, answer: str) -> None:
    assert said(ask(text)) == answer


def test_the_long_answer_has_five_sentences() -> None:
    assert LONG_ANSWER.count(".") == 5


def test_a_thought_comes_before_the_answer() -> None:
    assert said(ask("[[think]]")).endswith(f"</think>{ANSWER}")


def test_being_told_to_fail_raises() -> None:
    with pytest.raises(EngineError, match="told to fail"):
        run(ask("[[fail]]"))


def test_a_question_about_the_weather_calls_the_first_tool_with_arguments_from_its_schema() -> None:
    call, finish = run(ask("What's the Weather like?", tools=(WEATHER, Tool("other"))))
    assert isinstance(call, ToolCall)
    assert call.name == "get_weather"
    assert json.loads(call.arguments) == {"city": "Oslo", "days": 1, "unit": "celsius", "note": "example"}
    assert isinstance(finish, Finish)


@pytest.mark.parametrize(
    ("text", "choice", "name"),
    [
        ("weather", "none", None),
        ("hello", "auto", None),
        ("hello", "required", "get_weather"),
        ("hello", "other", "other"),
        ("[[echo:weather]]", "auto", None),
    ],
)
def test_the_tool_choice_forces_or_forbids_a_call(text: str, choice: str, name: str | None) -> None:
    answer = run(ask(text, tools=(WEATHER, Tool("other")), tool_choice=choice))
    assert [item.name for item in answer if isinstance(item, ToolCall)] == ([name] if name else [])


def test_a_tool_result_is_spoken_and_calls_no_tool_again() -> None:
    call = ToolCall("c1", "get_weather", "{}")
    history = (Message("user", "weather"), call, ToolResult("c1", "12 degrees"))
    assert said(Generate(history=history, tools=(WEATHER,))) == "The tool said: 12 degrees."


def test_words_are_tokens_and_are_counted() -> None:
    *tokens, finish = run(ask("one two three", instructions="be kind"))
    assert len(tokens) == len(ANSWER.split())
    assert finish == Finish("stop", input_tokens=5, output_tokens=len(tokens))


def test_the_token_limit_cuts_the_answer() -> None:
    assert run(ask("hello", max_output_tokens=2)) == [
        Token("Thank"),
        Token(" you,"),
        Finish("length", input_tokens=1, output_tokens=2),
    ]


def test_closing_the_answer_ends_it() -> None:
    answer = ScriptedLLM(SETTINGS).generate(ask("[[long]]"))
    next(answer)
    answer.close()  # type: ignore[attr-defined]
    assert list(answer) == []


@pytest.mark.parametrize(("text", "speed", "seconds"), [(ANSWER, 1.0, 2.64), (f" {ANSWER} ", 2.0, 1.32)])
def test_speech_lasts_60_ms_a_character(text: str, speed: float, seconds: float) -> None:
    chunks = list(ScriptedTTS(SETTINGS).synthesize(text, speed=speed))
    assert sum(map(len, chunks)) == round(seconds * 24_000)
    assert {len(chunk) for chunk in chunks[:-1]} == {7_680}


def test_speech_is_one_unbroken_300_hz_sine() -> None:
    samples = np.concatenate(list(ScriptedTTS(SETTINGS).synthesize(ANSWER)))
    assert samples.dtype == np.float32
    assert np.abs(samples).max() == pytest.approx(0.3, abs=1e-3)
    assert np.abs(np.diff(samples)).max() <= 0.3 * 2 * np.pi * 300 / 24_000 + 1e-5
    spectrum = np.abs(np.fft.rfft(samples))
    assert np.argmax(spectrum) * 24_000 / len(samples) == pytest.approx(300, abs=0.5)


@pytest.mark.parametrize("text", ["", "  ", "...", "**"])
def test_nothing_to_pronounce_yields_no_sound(text: str) -> None:
    assert list(ScriptedTTS(SETTINGS).synthesize(text)) == []
