"""Language models behind ``/v1/chat/completions``: hosted ones, and local servers that speak it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import openai
from openai import OpenAI, Stream
from openai.types.chat import ChatCompletionChunk

from units.engines.base import EngineError, EngineSettings
from units.engines.chat import chat_messages, chat_tool_choice, chat_tools, json_object
from units.engines.openai_stream import Patience
from units.engines.remote_llm import Piece, RemoteLanguageModel
from units.engines.tool_text import new_call_id, split_tool_text
from units.messages import Finish, Generate, Token, ToolCall
from units.scope import current_scope

logger = logging.getLogger(__name__)

_REASONS: dict[str, Literal["stop", "length", "content_filter"]] = {
    "length": "length",
    "content_filter": "content_filter",
}


class ChatCompletions(RemoteLanguageModel):
    """Any OpenAI-compatible chat server. ``extra`` goes into every request's body as it is."""

    def __init__(
        self,
        settings: EngineSettings,
        patience: Patience | None = None,
        *,
        extra: Mapping[str, Any] | None = None,
        loopback: bool = False,
    ) -> None:
        super().__init__(settings, patience, loopback=loopback)
        self._extra = dict(extra or {})
        self._reports_usage = True

    def _answer(self, request: Generate) -> Iterator[Piece]:
        names = [tool.name for tool in request.tools] if request.tool_choice != "none" else []
        body = self._body(request)
        with closing(self._server.stream(lambda client: self._open(client, body))) as chunks:  # type: ignore[type-var]
            yield from split_tool_text(assemble(chunks), names)

    def _body(self, request: Generate) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.named_model(), "messages": chat_messages(request)}
        if request.tools:
            body["tools"] = chat_tools(request.tools)
            body["tool_choice"] = chat_tool_choice(request)
            if not request.parallel_tool_calls:
                body["parallel_tool_calls"] = False
        if request.max_output_tokens is not None:
            # OpenAI's newer models refuse the name that every other server knows.
            limit = "max_completion_tokens" if self._server.hosted else "max_tokens"
            body[limit] = request.max_output_tokens
        return body

    def _open(self, client: OpenAI, body: dict[str, Any]) -> Stream[ChatCompletionChunk]:
        usage: dict[str, Any] = {"stream_options": {"include_usage": True}} if self._reports_usage else {}
        try:
            stream: Stream[ChatCompletionChunk] = client.chat.completions.create(
                **body, **usage, stream=True, extra_body=self._extra
            )
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if not usage or not _is_about_usage(error):
                raise
            logger.info("%s does not report usage in streams", self._server.host)
            self._reports_usage = False
            return self._open(client, body)
        return stream


def _is_about_usage(error: openai.APIStatusError) -> bool:
    return "stream_options" in str(error.body or error.message) or "include_usage" in str(error.body)


@dataclass(slots=True)
class _OpenCall:
    """A tool call of which pieces are still coming."""

    index: int
    call_id: str
    name: str
    arguments: str = ""

    def finished(self) -> ToolCall:
        if self.arguments.strip() and json_object(self.arguments) is None:
            raise EngineError(
                f"The language model called {self.name!r} with arguments that are not a JSON object."
            )
        return ToolCall(self.call_id, self.name, self.arguments.strip() or "{}")


def assemble(chunks: Iterator[ChatCompletionChunk]) -> Iterator[Piece]:
    """Tokens, complete calls and one Finish out of a stream of chunks.

    Reasoning that the server keeps apart is left out. A call that the token limit cut off is dropped.
    Raises EngineError when the stream ends without a finish reason: where the end of the connection is
    the end of the body, nothing else tells an answer from the beginning of one.
    """
    open_call: _OpenCall | None = None
    reason, usage, tokens, calls = "", None, 0, 0
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in (chunk.choices or [])[:1]:
            reason = choice.finish_reason or reason
            if choice.delta is None:
                continue
            if text := choice.delta.content or choice.delta.refusal:
                tokens += 1
                yield Token(text)
            for delta in choice.delta.tool_calls or ():
                if open_call is None or _begins(delta, open_call):
                    if open_call is not None:
                        yield open_call.finished()
                    calls += 1
                    open_call = _OpenCall(delta.index, delta.id or new_call_id(), "")
                if delta.function is not None:
                    open_call.name = open_call.name or delta.function.name or ""
                    open_call.arguments += delta.function.arguments or ""
    if not reason:
        if current_scope().cancelled:
            return
        if not (tokens or calls):
            raise EngineError("The language model ended its answer without having begun it.")
        raise EngineError("The language model server broke off its answer.")
    if open_call is not None and reason != "length":
        yield open_call.finished()
    yield _finish(reason, usage, tokens)


def _begins(delta: Any, open_call: _OpenCall) -> bool:
    """Whether ``delta`` starts another call. Some servers give every call the index 0, but a new id."""
    return delta.index != open_call.index or bool(delta.id and delta.id != open_call.call_id)


def _finish(reason: str, usage: Any, tokens: int) -> Finish:
    stopped = _REASONS.get(reason, "stop")
    if usage is None:
        return Finish(stopped, output_tokens=tokens)
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens if details is not None else None) or 0
    return Finish(stopped, usage.prompt_tokens or 0, usage.completion_tokens or 0, cached)
