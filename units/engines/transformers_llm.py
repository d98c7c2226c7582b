"""Language models run by ``transformers`` in this process: any causal model with a chat template."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import jinja2
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, StoppingCriteria, StoppingCriteriaList

from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.engines.chat import chat_messages, chat_tools, talk_only, without_images
from units.engines.tool_text import split_tool_text
from units.messages import Finish, Generate, Message, Token, ToolCall
from units.scope import current_scope

logger = logging.getLogger(__name__)

MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
ANSWER_TOKENS = 1024
TEMPERATURE = 0.3
TOP_P = 0.9


class _Stop(StoppingCriteria):  # type: ignore[misc]
    """Ends generation when the answer is no longer wanted."""

    def __init__(self) -> None:
        self.wanted = True

    def __call__(self, input_ids: Any, scores: Any, **more: Any) -> Any:
        return torch.full((input_ids.shape[0],), not self.wanted, device=input_ids.device, dtype=torch.bool)


class TransformersLLM:
    """A causal language model. ``settings.model`` is a hub id or a local folder.

    One answer at a time: a lock keeps the model for whoever came first.
    """

    def __init__(self, settings: EngineSettings) -> None:
        name = settings.model or MODEL
        self._device = _device(settings.device)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name)
            self._model = AutoModelForCausalLM.from_pretrained(name, dtype="auto").to(self._device).eval()
        except (OSError, ValueError) as error:
            raise EngineUnavailable(
                f"The language model {name!r} cannot be loaded; give --llm-model a hub id that this machine "
                "can reach, or the folder of a transformers model."
            ) from error
        if not self._tokenizer.chat_template:
            raise EngineUnavailable(f"The model {name!r} has no chat template; choose an instruct model.")
        most = getattr(self._model.config, "max_position_embeddings", 0) - ANSWER_TOKENS
        self.context_tokens = settings.context or max(0, most)
        self._one_at_a_time = threading.Lock()

    def warm(self) -> None:
        """Make one tiny real call. Raises EngineUnavailable when it fails."""
        try:
            for _ in self.generate(Generate(history=(Message("user", "Hi"),), max_output_tokens=4)):
                pass
        except EngineError as error:
            raise EngineUnavailable(str(error)) from error

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        """Stream the answer. Closing the iterator stops the model within one token."""
        request = talk_only(without_images(request))
        answer = self._answer(request, chat_tools(request.tools))
        return split_tool_text(answer, [tool.name for tool in request.tools])

    def _answer(self, request: Generate, tools: list[dict[str, Any]]) -> Iterator[Token | ToolCall | Finish]:
        prompt = self._prompt(request, tools)
        limit = request.max_output_tokens or ANSWER_TOKENS
        count = prompt["input_ids"].shape[1]
        with self._one_at_a_time:
            run = _Run(self._model, self._tokenizer, prompt, limit)
            current_scope().on_cancel(run.stop)
            try:
                yield from map(Token, filter(None, run.streamer))
            finally:
                current_scope().forget(run.stop)
                run.stop()
                run.join()
        if run.failure is not None:
            raise EngineError(f"The language model failed ({type(run.failure).__name__}).") from run.failure
        yield Finish("length" if run.tokens >= limit else "stop", count, run.tokens)

    def _prompt(self, request: Generate, tools: list[dict[str, Any]]) -> Any:
        messages = [_for_template(message) for message in chat_messages(request)]
        try:
            prompt = self._tokenizer.apply_chat_template(
                messages,
                tools=tools or None,
                add_generation_prompt=True,
                return_dict=True,
                return_tensors="pt",
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise EngineError("The model's chat template refuses this conversation.") from error
        return prompt.to(self._device)


class _Run:
    """One generation on a thread of its own, and the text as it comes."""

    def __init__(self, model: Any, tokenizer: Any, prompt: Any, limit: int) -> None:
        self.streamer = transformers.TextIteratorStreamer(
            tokenizer, skip_prompt=True, skip_special_tokens=True
        )
        self.failure: Exception | None = None
        self.tokens = 0
        self._stop = _Stop()
        self._prompt_tokens = prompt["input_ids"].shape[1]
        options = {
            **prompt,
            "max_new_tokens": limit,
            "do_sample": True,
            "temperature": TEMPERATURE,
            "top_p": TOP_P,
            "streamer": self.streamer,
            "stopping_criteria": StoppingCriteriaList([self._stop]),
            "pad_token_id": tokenizer.pad_token_id or tokenizer.eos_token_id,
        }
        self._thread = threading.Thread(
            target=self._run, args=(model, options), name="transformers-llm", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Have generation end after the token it is at. From any thread."""
        self._stop.wanted = False

    def join(self) -> None:
        """Wait for it to have ended."""
        self._thread.join()

    def _run(self, model: Any, options: dict[str, Any]) -> None:
        try:
            with torch.inference_mode():
                self.tokens = model.generate(**options).shape[1] - self._prompt_tokens
        except (RuntimeError, ValueError, IndexError) as error:
            self.failure = error
        finally:
            self.streamer.end()


def _for_template(message: dict[str, Any]) -> dict[str, Any]:
    """Templates want arguments as an object, and text where a server takes parts."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    content = message["content"]
    if isinstance(content, list):
        content = " ".join(part["text"] for part in content if part["type"] == "text")
    return {**message, "content": content or "", **({"tool_calls": calls} if calls else {})}


def _device(wanted: str) -> str:
    """The torch device. Raises EngineUnavailable when CUDA is wanted and there is none."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise EngineUnavailable("There is no CUDA device for the language model; use --device cpu or auto.")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"
