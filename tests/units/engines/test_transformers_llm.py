"""The transformers engine on a model of a few thousand random weights: the real code path, no download."""

from __future__ import annotations

from pathlib import Path

import pytest

from units.engines.base import EngineSettings, EngineUnavailable
from units.messages import Finish, Generate, Message, Token, Tool, ToolCall, ToolResult
from units.scope import CancelScope, entered

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from units.engines.transformers_llm import TransformersLLM  # noqa: E402

pytestmark = pytest.mark.e2e

TEMPLATE = (
    "{% for t in tools or [] %}tool {{ t.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.role }} {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}{% endfor %} {% endfor %}assistant "
)
WORDS = ["<unk>", "<eos>", "user", "assistant", "system", "tool", "hello", "there", "get_weather", "Oslo"]
HI = Generate(history=(Message("user", "hello there"),), max_output_tokens=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model: two layers, ten words, no end of sentence that it would ever choose to write."""
    path = tmp_path_factory.mktemp("tiny")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<eos>"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    config = transformers.GraniteConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        eos_token_id=None,
        bos_token_id=None,
    )
    transformers.GraniteForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def llm(folder: Path) -> TransformersLLM:
    return TransformersLLM(EngineSettings("transformers", str(folder), device="cpu"))


def test_text_streams_until_the_token_limit(llm: TransformersLLM) -> None:
    *tokens, finish = llm.generate(HI)
    assert all(isinstance(token, Token) for token in tokens)
    assert finish == Finish("length", input_tokens=4, output_tokens=5)


def test_closing_the_answer_stops_the_model_and_the_next_one_works(llm: TransformersLLM) -> None:
    answer = llm.generate(Generate(history=HI.history, max_output_tokens=4000))
    next(answer)
    answer.close()  # type: ignore[attr-defined]
    assert isinstance(list(llm.generate(HI))[-1], Finish)


def test_a_cancelled_scope_stops_the_model(llm: TransformersLLM) -> None:
    scope = CancelScope("response")
    with entered(scope):
        answer = llm.generate(Generate(history=HI.history, max_output_tokens=4000))
        next(answer)
        scope.cancel()
        *_, finish = answer
    assert isinstance(finish, Finish)
    assert finish.output_tokens < 4000


def test_calls_and_results_and_tools_go_through_the_template(llm: TransformersLLM) -> None:
    history = (
        *HI.history,
        ToolCall("1", "get_weather", '{"city": "Oslo"}'),
        ToolResult("1", "there"),
        Message("user", "hello"),
    )
    request = Generate(history=history, tools=(Tool("get_weather"),), max_output_tokens=1)
    finish = list(llm.generate(request))[-1]
    assert isinstance(finish, Finish)
    # tool get_weather, user hello there, assistant Oslo, tool there, user hello, assistant
    assert finish.input_tokens == 12


def test_a_result_is_spoken_without_tools(llm: TransformersLLM) -> None:
    history = (*HI.history, ToolCall("1", "get_weather", '{"city": "Oslo"}'), ToolResult("1", "there"))
    request = Generate(history=history, tools=(Tool("get_weather"),), max_output_tokens=1)
    *_, finish = llm.generate(request)
    assert isinstance(finish, Finish)
    # user hello there [get_weather({"city": "Oslo"}) returned: there] and a request in seven words, assistant
    assert finish.input_tokens == 15


def test_a_folder_without_a_model_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="give --llm-model a hub id"):
        TransformersLLM(EngineSettings("transformers", str(tmp_path)))
