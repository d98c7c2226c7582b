"""A request as OpenAI chat messages: pure, no network.

Servers refuse a conversation in which a tool call has no result or a result no call, and many chat
templates refuse two users in a row. Both happen in spoken conversations (a caller interrupts a tool,
a result arrives late), so they are mended here, once, for every engine that speaks this dialect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Any

from units.messages import Generate, Message, Tool, ToolCall, ToolResult

CANCELLED = "The call was cancelled before it gave a result."
NOTHING = "The function returned nothing."
UNSEEN = "[an image, which you cannot see]"

ChatMessage = dict[str, Any]
Item = Message | ToolCall | ToolResult


def chat_messages(request: Generate) -> list[ChatMessage]:
    """``request`` as chat messages, the instructions first.

    Every tool call is directly followed by its result: one that came later is moved up, one that
    never came is said to be cancelled; of several the first counts. Results without a call are dropped.
    """
    results: dict[str, str] = {}
    for item in request.history:
        if isinstance(item, ToolResult):
            results.setdefault(item.call_id, item.output)
    messages = [{"role": "system", "content": request.instructions}] if request.instructions.strip() else []
    for item in request.history:
        if isinstance(item, Message):
            _say(messages, item)
        elif isinstance(item, ToolCall):
            _call(messages, item, results.get(item.call_id, CANCELLED))
    return messages


def chat_tools(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """``tools`` as the request field of that name."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json_schema(tool),
            },
        }
        for tool in tools
    ]


def chat_tool_choice(request: Generate) -> str | dict[str, Any]:
    """``tool_choice`` of the request field of that name; an unknown function means ``auto``."""
    if request.tool_choice in {"auto", "none", "required"}:
        return request.tool_choice
    if request.tool_choice in {tool.name for tool in request.tools}:
        return {"type": "function", "function": {"name": request.tool_choice}}
    return "auto"


def json_schema(tool: Tool) -> dict[str, Any]:
    """The schema of the tool's arguments; a tool without one takes no arguments."""
    schema = json_object(tool.parameters)
    return schema if schema else {"type": "object", "properties": {}}


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object in ``text``, or None when it is anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def without_images(request: Generate) -> Generate:
    """For models that cannot see: ``request`` with a word where an image was."""
    history = tuple(
        replace(item, text=f"{item.text}\n{len(item.images) * UNSEEN}".strip(), images=())
        if isinstance(item, Message) and item.images
        else item
        for item in request.history
    )
    return replace(request, history=history)


def talk_only(request: Generate, most_characters: int = 4000) -> Generate:
    """For small models: ``request`` without tools where no tool is to be called now.

    A small model that sees a call in its history repeats it instead of talking, whatever it is told. So
    calls are left out and results at the end become words of the user. Other requests stay as they are.
    """
    results = list(takewhile(lambda item: isinstance(item, ToolResult), reversed(request.history)))
    if request.tools and request.tool_choice != "none" and not results:
        return request
    calls = {item.call_id: item for item in request.history if isinstance(item, ToolCall)}
    said = [item for item in request.history if isinstance(item, Message)]
    told = [
        f"[{calls[item.call_id].name}({calls[item.call_id].arguments}) returned: "
        f"{item.output.strip()[:most_characters] or NOTHING}]"
        for item in reversed(results)
        if isinstance(item, ToolResult) and item.call_id in calls
    ]
    if told:
        said.append(Message("user", "\n".join(("", *told, "", "Answer me in one short spoken sentence."))))
    return replace(request, history=tuple(said), tools=(), tool_choice="auto")


def _say(messages: list[ChatMessage], said: Message) -> None:
    if not said.text.strip() and not said.images:
        return
    last = messages[-1] if messages else None
    if last and last["role"] == said.role != "system" and _is_text(last) and not said.images:
        last["content"] += f"\n{said.text}"
    else:
        messages.append({"role": said.role, "content": _content(said)})


def _is_text(message: ChatMessage) -> bool:
    return isinstance(message["content"], str) and "tool_calls" not in message


def _content(said: Message) -> str | list[dict[str, Any]]:
    if not said.images:
        return said.text
    text = [{"type": "text", "text": said.text}] if said.text.strip() else []
    return [*text, *({"type": "image_url", "image_url": image._asdict()} for image in said.images)]


def _call(messages: list[ChatMessage], call: ToolCall, result: str) -> None:
    """Add ``call`` to the assistant message it belongs to, and its result behind that."""
    caller = _caller(messages)
    if any(known["id"] == call.call_id for known in caller.get("tool_calls", ())):
        return
    arguments = call.arguments if json_object(call.arguments) is not None else "{}"
    function = {"name": call.name, "arguments": arguments}
    caller.setdefault("tool_calls", []).append({"id": call.call_id, "type": "function", "function": function})
    messages.append({"role": "tool", "tool_call_id": call.call_id, "content": result.strip() or NOTHING})


def _caller(messages: list[ChatMessage]) -> ChatMessage:
    """The assistant message at the end, looking past results; a new one where there is none."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return message
        if message["role"] != "tool":
            break
    messages.append({"role": "assistant", "content": None})
    return messages[-1]
