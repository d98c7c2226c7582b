"""What is certain to have been said, for whoever writes a session down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from units.messages import Said
from units.realtime.conversation import Item, text_of
from units.realtime.response import Response
from units.turns import Turn


def spoken(turn: Turn) -> Iterator[Said]:
    """The caller's turn; nothing if there were no words in it."""
    if turn.text or turn.failure:
        yield Said(turn.item_id, "user", "speech", turn.text or "", error=turn.failure or "")


def lost(item_id: str) -> Said:
    """The caller spoke, and nobody will know what."""
    return Said(item_id, "user", "speech", "", error="The session ended before the words were known.")


def put_in(item: Item) -> Iterator[Said]:
    """An item that a client has put into the conversation; of sound only words that it gave itself."""
    match item["type"]:
        case "message":
            if text := text_of(item):
                yield Said(item["id"], item["role"], "text", text)
        case "function_call":
            yield called(item)
        case "function_call_output":
            yield Said(item["id"], "tool", "tool_result", item["output"], tool_call_id=item["call_id"])
        case "mcp_approval_response":
            decision = "approved" if item["approve"] else "refused"
            reason = f": {item['reason']}" if item.get("reason") else ""
            yield Said(
                item["id"],
                "user",
                "approval",
                f"{decision}{reason}",
                tool_call_id=item["approval_request_id"],
            )


def recorded(item: Item, text: str, failure: str | None) -> Iterator[Said]:
    """The words in the sound of an item."""
    if text or failure:
        yield Said(item["id"], item["role"], "speech", text, error=failure or "")


def called(item: Item, response: Response | None = None) -> Said:
    """A tool is called, the client's or one of an MCP server."""
    return Said(
        item["id"],
        "assistant",
        "tool_call",
        item["arguments"],
        response_id="" if response is None else response.id,
        name=item["name"],
        tool_call_id=item.get("call_id") or item["id"],
    )


def returned(item: Item, response: Response) -> Said:
    """What came of the call of an MCP server's tool."""
    error = item.get("error") or {}
    return Said(
        item["id"],
        "tool",
        "tool_result",
        item["output"] or "",
        response_id=response.id,
        name=item["name"],
        tool_call_id=item["id"],
        error=error.get("message", ""),
    )


def answered(response: Response, text: str, *, interrupted: bool) -> Iterator[Said]:
    """The words of a response that were heard, or in a session of text read; nothing if there were none."""
    if response.message is not None and text.strip():
        kind: Literal["speech", "text"] = "speech" if response.config.spoken else "text"
        yield Said(
            response.message["id"],
            "assistant",
            kind,
            text.strip(),
            response_id=response.id,
            interrupted=interrupted,
        )
