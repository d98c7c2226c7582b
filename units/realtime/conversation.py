"""The default conversation: items in order, and what the model is shown of them."""

from __future__ import annotations

from typing import Any

from units.messages import Image, Message, ToolCall, ToolResult
from units.realtime.context import too_old
from units.realtime.errors import ProtocolError

Item = dict[str, Any]
"""A conversation item as it stands on the wire (without audio)."""


MOST_ITEMS = 5_000
MOST_CHARACTERS = 64_000_000
"""What clients may put into a conversation, images included; a session's own turns always have a place."""


class Conversation:
    """Items by id, in order. Owned by one RealtimeService."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._items: list[Item] = []
        self._forgotten: set[str] = set()  # ids of items that the model is no longer shown

    def __contains__(self, item_id: object) -> bool:
        return any(item["id"] == item_id for item in self._items)

    def find(self, item_id: str) -> Item | None:
        return next((item for item in self._items if item["id"] == item_id), None)

    @property
    def full(self) -> bool:
        """Clients may add nothing more."""
        return len(self._items) >= MOST_ITEMS or sum(map(_size, self._items)) >= MOST_CHARACTERS

    def holds(self, item: Item) -> bool:
        """Whether this very item is here, rather than one that a client made with the same id."""
        return any(each is item for each in self._items)

    def previous_id(self, item_id: str) -> str | None:
        """Id of the item in front of ``item_id``; None for the first."""
        index = self._index(item_id)
        return self._items[index - 1]["id"] if index else None

    @property
    def last_id(self) -> str | None:
        return self._items[-1]["id"] if self._items else None

    def insert(self, item: Item, previous_item_id: str | None = None) -> None:
        """After ``previous_item_id``; ``root`` is the front, None or "" the tail. Raises ProtocolError."""
        if item["id"] in self:
            message = f"Error adding item: an item with id '{item['id']}' already exists."
            raise ProtocolError("item_create_duplicate_item_id", message, "item.id")
        self._items.insert(self._place(previous_item_id), item)

    def _place(self, previous_item_id: str | None) -> int:
        if not previous_item_id:
            return len(self._items)
        if previous_item_id == "root":
            return 0
        if previous_item_id not in self:
            raise ProtocolError(
                "item_create_invalid_previous_item_id",
                f"Error adding item: the previous item with id '{previous_item_id}' does not exist.",
                "previous_item_id",
            )
        return self._index(previous_item_id) + 1

    def delete(self, item_id: str) -> None:
        del self._items[self._index(item_id)]
        self._forgotten.discard(item_id)

    def calls(self, call_id: str) -> bool:
        """Whether the conversation holds a function call with this id."""
        return any(item["type"] == "function_call" and item["call_id"] == call_id for item in self._items)

    @property
    def awaits_result(self) -> bool:
        """A function was called and has not returned."""
        ids: dict[str, set[str]] = {"function_call": set(), "function_call_output": set()}
        for item in self._items:
            if item["type"] in ids:
                ids[item["type"]].add(item["call_id"])
        return not ids["function_call"] <= ids["function_call_output"]

    @property
    def has_sound(self) -> bool:
        """The assistant has spoken."""
        parts = (part for item in self._items for part in item.get("content") or ())
        return any(part["type"] == "output_audio" for part in parts)

    def history(self) -> tuple[Message | ToolCall | ToolResult, ...]:
        """An immutable snapshot for the model: what was said and heard, calls and their results."""
        return history(self._remembered())

    def forget(self, most: int) -> None:
        """From now on show the model no more than about ``most`` tokens: the oldest items go."""
        shown = [(item, _entries(item)) for item in self._remembered()]
        leaving = too_old([entry for _, entries in shown for entry in entries], most)
        for item, entries in shown:
            if leaving <= 0:
                break
            self._forgotten.add(item["id"])
            leaving -= len(entries)

    def _remembered(self) -> list[Item]:
        return [item for item in self._items if item["id"] not in self._forgotten]

    def _index(self, item_id: str) -> int:
        return next(index for index, item in enumerate(self._items) if item["id"] == item_id)


def _size(item: Item) -> int:
    """Characters of the texts and images that a client may have put into an item."""
    if item["type"] != "message":
        return len(item.get("arguments", "")) + len(item.get("output") or "")
    return sum(len(part.get("text") or part.get("image_url") or "") for part in item["content"])


def history(items: list[Item]) -> tuple[Message | ToolCall | ToolResult, ...]:
    """What a model is shown of ``items``; those in which nothing was said are left out."""
    return tuple(entry for item in items for entry in _entries(item))


def _entries(item: Item) -> tuple[Message | ToolCall | ToolResult, ...]:
    match item["type"]:
        case "function_call":
            return (ToolCall(item["call_id"], item["name"], item["arguments"]),)
        case "function_call_output":
            return (ToolResult(item["call_id"], item["output"]),)
        case "mcp_call":
            call = ToolCall(item["id"], item["name"], item["arguments"])
            return call, ToolResult(item["id"], _result(item))
        case "message":
            text = text_of(item)
            shown = (part for part in item["content"] if part["type"] == "input_image")
            images = tuple(Image(part["image_url"], part["detail"]) for part in shown)
            return (Message(item["role"], text, images),) if text or images else ()
    return ()


def _result(call: Item) -> str:
    """What a model is told of a call that the server makes itself."""
    if call.get("error"):
        return f"Error: {call['error']['message']}"
    return "There is no result yet." if call["output"] is None else str(call["output"])


def text_of(item: Item) -> str:
    """All that was written or said in a message, in one string."""
    parts = (part.get("text") or part.get("transcript") or "" for part in item["content"])
    return " ".join(part for part in parts if part).strip()
