"""The default language model; the marked tests run its real weights."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from units.engines.base import EngineSettings, EngineUnavailable
from units.engines.llama_cpp import LlamaCpp, model_file, parameters
from units.messages import Finish, Generate, Message, Token, Tool, ToolCall, ToolResult
from units.realtime.context import text_tokens, tokens
from units.scope import CancelScope, entered

INSTRUCTIONS = "You are a voice assistant. Answer in one short spoken sentence."
WEATHER = Tool(
    "get_weather",
    "Get the current weather in a city.",
    '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}',
)


def ask(text: str, *tools: Tool) -> Generate:
    return Generate(
        history=(Message("user", text),), instructions=INSTRUCTIONS, tools=tools, max_output_tokens=60
    )


def said(answer: Iterator[Token | ToolCall | Finish]) -> str:
    return "".join(item.text for item in answer if isinstance(item, Token))


def test_a_model_that_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="duologue models fetch qwen"):
        model_file(EngineSettings("llama-cpp", models_dir=tmp_path))


def test_a_folder_without_a_gguf_file_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"no \.gguf file"):
        model_file(EngineSettings("llama-cpp", str(tmp_path)))


def test_a_file_of_one_s_own_may_be_named(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    assert model_file(EngineSettings("llama-cpp", str(own))) == own.resolve()
    assert model_file(EngineSettings("llama-cpp", str(tmp_path))) == own.resolve()


def test_a_broken_file_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    with pytest.raises(EngineUnavailable, match="is it a complete GGUF file"):
        LlamaCpp(EngineSettings("llama-cpp", str(tmp_path)))


def test_the_server_is_for_this_process_only() -> None:
    params = parameters(Path("x.gguf"), "cpu", "key")
    assert list(params.hostnames) == ["127.0.0.1"]
    assert list(params.api_keys) == ["key"]
    assert not params.ui


@pytest.fixture(scope="module")
def llm() -> Iterator[LlamaCpp]:
    with closing(LlamaCpp(EngineSettings("llama-cpp"))) as engine:
        engine.warm()
        yield engine


@pytest.mark.e2e
def test_it_answers_a_question(llm: LlamaCpp) -> None:
    *tokens, finish = llm.generate(ask("What is the capital of France?"))
    assert "Paris" in said(iter(tokens))
    assert isinstance(finish, Finish)
    assert finish.reason == "stop"
    assert finish.output_tokens > 0


@pytest.mark.e2e
def test_the_same_question_gets_the_same_answer_from_a_cached_prompt(llm: LlamaCpp) -> None:
    first = list(llm.generate(ask("What is the capital of Norway?")))
    second = list(llm.generate(ask("What is the capital of Norway?")))
    assert said(iter(first)) == said(iter(second))
    assert isinstance(second[-1], Finish)
    assert second[-1].cached_tokens >= second[-1].input_tokens - 4


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("question", "city"),
    [
        ("What's the weather in Oslo?", "Oslo"),
        ("Is it raining in London right now?", "London"),
        ("How is the weather in Paris today?", "Paris"),
        ("How warm is it in Madrid?", "Madrid"),
        ("Tell me the weather for Berlin please.", "Berlin"),
    ],
)
def test_it_calls_the_tool_and_speaks_the_result(llm: LlamaCpp, question: str, city: str) -> None:
    request = ask(question, WEATHER)
    call, finish = llm.generate(request)
    assert isinstance(call, ToolCall)
    assert call.name == "get_weather"
    assert city in json.loads(call.arguments)["city"]
    assert isinstance(finish, Finish)
    result = ToolResult(call.call_id, '{"temperature_c": 17, "sky": "light rain"}')
    answer = said(
        llm.generate(
            Generate((*request.history, call, result), INSTRUCTIONS, (WEATHER,), max_output_tokens=60)
        )
    )
    assert "17" in answer or "rain" in answer
    assert "{" not in answer


@pytest.mark.e2e
def test_cancelling_stops_it_at_once_and_the_next_request_works(llm: LlamaCpp) -> None:
    scope, started = CancelScope("response"), threading.Event()

    def run() -> None:
        with entered(scope):
            for _ in llm.generate(Generate((Message("user", "Count from one to two hundred in words."),))):
                started.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    began = time.monotonic()
    scope.cancel()
    thread.join(10)
    assert not thread.is_alive()
    assert time.monotonic() - began < 1.0
    assert "Paris" in said(llm.generate(ask("What is the capital of France?")))


@pytest.mark.e2e
def test_two_requests_at_once_do_not_mix(llm: LlamaCpp) -> None:
    answers: dict[str, str] = {}

    def run(country: str) -> None:
        answers[country] = said(llm.generate(ask(f"What is the capital of {country}?")))

    threads = [threading.Thread(target=run, args=(country,)) for country in ("France", "Italy")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert "Paris" in answers["France"]
    assert "Rome" in answers["Italy"]


@pytest.mark.e2e
def test_turns_that_leave_a_long_conversation_do_not_cost_the_cached_prompt(llm: LlamaCpp) -> None:
    roles: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
    talk = tuple(
        Message(role, f"This is sentence {i} about {7 * i} things.") for i in range(24) for role in roles
    )
    question = Message("user", "What is the capital of France?")
    list(llm.generate(Generate(talk, INSTRUCTIONS, max_output_tokens=2)))
    *_, finish = llm.generate(Generate((*talk[16:], question), INSTRUCTIONS, max_output_tokens=2))
    assert isinstance(finish, Finish)
    assert finish.cached_tokens > finish.input_tokens * 0.8


@pytest.mark.e2e
@pytest.mark.parametrize(
    "text", ["The quick brown fox jumps. ", "Überraschungen gibt es. ", "我们今天去公园散步。", "0199 57 42 "]
)
def test_no_prompt_is_longer_than_estimated(llm: LlamaCpp, text: str) -> None:
    said = Message("user", 20 * text)
    *_, finish = llm.generate(Generate((said,), INSTRUCTIONS, max_output_tokens=1))
    assert isinstance(finish, Finish)
    template = 10
    estimated = tokens([said]) + text_tokens(INSTRUCTIONS) + template
    assert estimated / 2 < finish.input_tokens <= estimated


@pytest.mark.e2e
def test_the_interpreter_leaves_promptly_in_the_middle_of_an_answer() -> None:
    script = (
        "import time; from units.engines.llama_cpp import *; from units.messages import Message\n"
        "request = Generate((Message('user', 'Tell a long story'),))\n"
        "answer = LlamaCpp(EngineSettings('llama-cpp')).generate(request)\n"
        "next(answer); print(time.monotonic())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert time.monotonic() - float(done.stdout) < 5.0


@pytest.mark.e2e
def test_nobody_without_the_key_may_use_it(llm: LlamaCpp) -> None:
    assert llm._server is not None
    request = urllib.request.Request(f"{llm._server.base_url}/chat/completions", b"{}")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert refused.value.code == 401


@pytest.mark.e2e
def test_engines_of_one_model_share_one_server(llm: LlamaCpp) -> None:
    with closing(LlamaCpp(EngineSettings("llama-cpp"))) as other:
        assert other._server is llm._server
    assert said(llm.generate(ask("Say hello.")))
