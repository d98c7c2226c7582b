"""Language models behind ``/v1/responses``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

from openai import OpenAI, Stream
from openai.types.responses import Response, ResponseStreamEvent

from units.engines.base import EngineError
from units.engines.chat import ChatMessage, chat_messages, chat_tool_choice, json_schema
from units.engines.remote_llm import Piece, RemoteLanguageModel
from units.engines.tool_text import split_tool_text
from units.messages import Finish, Generate, Token, ToolCall
from units.scope import current_scope


class Responses(RemoteLanguageModel):
    """Any server of OpenAI's Responses API. Nothing is stored there; every request carries its history."""

    def _answer(self, request: Generate) -> Iterator[Piece]:
        names = [tool.name for tool in request.tools] if request.tool_choice != "none" else []
        body = self._body(request)

        def open_stream(client: OpenAI) -> Stream[ResponseStreamEvent]:
            stream: Stream[ResponseStreamEvent] = client.responses.create(**body, stream=True)
            return stream

        with closing(self._server.stream(open_stream)) as events:  # type: ignore[type-var]
            yield from split_tool_text(read_events(events), names)

    def _body(self, request: Generate) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.named_model(), "input": input_items(request), "store": False}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": json_schema(tool),
                    "strict": False,
                }
                for tool in request.tools
            ]
            choice = chat_tool_choice(request)
            named = {"type": "function", "name": request.tool_choice}
            body["tool_choice"] = choice if isinstance(choice, str) else named
            body["parallel_tool_calls"] = request.parallel_tool_calls
        if request.max_output_tokens is not None:
            body["max_output_tokens"] = request.max_output_tokens
        return body


def input_items(request: Generate) -> list[dict[str, Any]]:
    """``request`` as input items, the instructions first; calls and results are paired as in a chat."""
    return [item for message in chat_messages(request) for item in _items(message)]


def _items(message: ChatMessage) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message["tool_call_id"],
            "output": message["content"],
        }
        return
    if message["content"]:
        yield {"role": message["role"], "content": _content(message["content"])}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _content(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    return [
        {"type": "input_text", "text": part["text"]}
        if part["type"] == "text"
        else {
            "type": "input_image",
            "image_url": part["image_url"]["url"],
            "detail": part["image_url"]["detail"],
        }
        for part in content
    ]


def read_events(events: Iterator[ResponseStreamEvent]) -> Iterator[Piece]:
    """Tokens, complete calls and one Finish out of a response's events.

    Raises EngineError when the response failed or its stream ended before it did.
    """
    for event in events:
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                yield Token(event.delta)
            case "response.output_item.done" if event.item.type == "function_call":
                # The item of a call that the token limit cut off is "incomplete".
                if event.item.status != "incomplete":
                    yield ToolCall(event.item.call_id, event.item.name, event.item.arguments or "{}")
            case "response.completed" | "response.incomplete":
                yield _finish(event.response)
                return
            case "response.failed":
                raise EngineError(f"The language model failed: {_reason(event.response.error)}")
            case "error":
                raise EngineError(f"The language model reported an error: {_reason(event)}")
    if not current_scope().cancelled:
        raise EngineError("The language model ended its answer before it was complete.")


def _finish(response: Response) -> Finish:
    details = response.incomplete_details
    reason: Literal["stop", "length", "content_filter"] = "stop"
    if details is not None:
        reason = "content_filter" if details.reason == "content_filter" else "length"
    usage = response.usage
    if usage is None:
        return Finish(reason)
    cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details else 0
    return Finish(reason, usage.input_tokens, usage.output_tokens, cached or 0)


def _reason(error: Any) -> str:
    """The server's own words, on one line."""
    text = " ".join(str(getattr(error, "message", None) or "no reason given").split())
    return text[:200]
