"""The MCP side of a session: which servers it has, what tools they listed, which calls are open.

Pure, like the service it belongs to: what a server says comes in as ``listed`` and ``returned``, what is
wanted of it goes out as effects. A tool runs beside its response. What came of it is told once the response
is done, whatever was quicker, since that is when a client may ask for the next one.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from units.messages import Tool, ToolCall
from units.realtime.config import MOST_TOOLS, ResponseConfig
from units.realtime.conversation import Conversation, Item
from units.realtime.effects import CallTool, CancelTool, Effect, ListTools
from units.realtime.errors import ProtocolError, wrong_value
from units.realtime.minutes import called, returned
from units.realtime.response import Response, ResponseState
from units.realtime.servers import RemoteTool, Server, ToolFault

logger = logging.getLogger(__name__)

MOST_LISTINGS = 64
"""Servers, each with its configuration, whose tools a session remembers."""
MOST_CALLS = 64
"""Calls of a session that run or wait for approval."""
CANCELLED = ToolFault("tool_execution_error", "The call was cancelled.")

Step = Iterator[Effect | dict[str, Any]]


@dataclass(slots=True)
class _Listing:
    item: Item
    tools: tuple[RemoteTool, ...] | None = None
    """None until the server has answered."""
    failed: bool = False


@dataclass(slots=True, eq=False)
class _Call:
    response: Response
    item: Item
    server: Server
    running: bool = False
    outcome: str | ToolFault | None = None

    @property
    def where(self) -> dict[str, Any]:
        return {"item_id": self.item["id"], "output_index": self.response.index(self.item)}


class RemoteTools:
    """The servers, tools and calls of one session."""

    def __init__(self, conversation: Conversation, new_id: Callable[[str], str]) -> None:
        self._conversation = conversation
        self._new_id = new_id
        self._listings: dict[Server, _Listing] = {}
        self._calls: dict[str, _Call] = {}  # by the id of the item

    # --- what servers have -----------------------------------------------------------------------

    def check_room(self, servers: Iterable[Server]) -> None:
        """Raise ProtocolError when the lists of new servers have no place in the conversation."""
        if self._conversation.full and any(server not in self._listings for server in servers):
            raise ProtocolError("conversation_full", "The conversation holds too much: delete items first.")

    def list_new(self, servers: Iterable[Server]) -> Step:
        """Have the servers list their tools whose list is not known, or on its way."""
        for server in servers:
            if server not in self._listings:
                yield from self._list(server)

    def _list(self, server: Server) -> Step:
        item: Item = {
            "id": self._new_id("mcpl"),
            "type": "mcp_list_tools",
            "server_label": server.label,
            "tools": [],
        }
        self._forget_some()
        self._listings[server] = _Listing(item)
        self._conversation.insert(item)
        yield self._item_event("added", item)
        yield {"type": "mcp_list_tools.in_progress", "item_id": item["id"]}
        yield ListTools(item["id"], server)

    def _forget_some(self) -> None:
        known = [server for server, listing in self._listings.items() if listing.tools is not None]
        for server in known[: max(0, len(self._listings) - MOST_LISTINGS + 1)]:
            del self._listings[server]

    def waits_for(self, servers: Iterable[Server]) -> bool:
        """Some of ``servers`` have not answered."""
        return any((found := self._listings.get(each)) is None or found.tools is None for each in servers)

    def listed(self, item_id: str, answer: tuple[RemoteTool, ...] | ToolFault) -> Step:
        """A server has listed its tools, or not."""
        found = [(server, each) for server, each in self._listings.items() if each.item["id"] == item_id]
        for server, listing in found:
            if isinstance(answer, ToolFault):
                logger.warning("MCP server %s lists no tools: %s", server.label, answer.message)
                listing.tools, listing.failed = (), True
                listing.item["error"] = answer.wire()
            else:
                listing.tools = tuple(filter(server.allowed.matches, answer))[:MOST_TOOLS]
                listing.item["tools"] = [_tool_wire(tool) for tool in listing.tools]
            how = "failed" if listing.failed else "completed"
            yield {"type": f"mcp_list_tools.{how}", "item_id": item_id}
            if self._conversation.holds(listing.item):
                yield self._item_event("done", listing.item)

    def forget_failures(self) -> None:
        """Whoever names a server again that gave no list asks for another try, once all have answered."""
        if any(listing.tools is None for listing in self._listings.values()):
            return
        for server in [server for server, listing in self._listings.items() if listing.failed]:
            del self._listings[server]

    def _item_event(self, what: str, item: Item) -> dict[str, Any]:
        previous = self._conversation.previous_id(item["id"])
        kind = f"conversation.item.{what}"
        return {"type": kind, "previous_item_id": previous, "item": copy.deepcopy(item)}

    def offer(self, config: ResponseConfig) -> ResponseConfig:
        """``config`` with the tools of its servers beside its functions."""
        remote: dict[str, tuple[Server, RemoteTool]] = {}
        taken = {tool.name for tool in config.tools}
        for server in config.servers:
            listing = self._listings.get(server)
            for tool in (listing.tools if listing else None) or ():
                if len(taken) < MOST_TOOLS:
                    name = _free_name(server, tool, taken)
                    taken.add(name)
                    remote[name] = (server, tool)
        tools = config.tools + tuple(_offered(name, *which) for name, which in remote.items())
        return _chosen(replace(config, tools=tools, remote=remote))

    # --- calls -----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """A tool is at work."""
        return any(call.running for call in self._calls.values())

    def call(self, response: Response, call: ToolCall) -> Step:
        """The model calls a tool of ``response.config.remote``."""
        server, tool = response.config.remote[call.name]
        item: Item = {
            "id": self._new_id("mcp"),
            "type": "mcp_call",
            "status": "in_progress",
            "server_label": server.label,
            "name": tool.name,
            "arguments": "",
            "output": None,
        }
        asks, full = server.asks(tool), len(self._calls) >= MOST_CALLS
        if asks and not full:
            item["approval_request_id"] = self._new_id("mcpr")
        open_call = self._calls[item["id"]] = _Call(response, item, server)
        yield from response.add_mcp_call(item, call.arguments)
        yield called(item, response)
        if full:
            open_call.outcome = ToolFault("tool_execution_error", "Too many calls are open.")
        elif asks:
            yield from response.add_approval_request(_approval_request(item))
        else:
            yield from self._start(open_call)

    def _start(self, call: _Call) -> Step:
        call.running = True
        yield {"type": "response.mcp_call.in_progress", **call.where}
        item = call.item
        yield CallTool(item["id"], call.server, item["name"], item["arguments"])

    def check_approval(self, request_id: str) -> None:
        """Raise ProtocolError unless a call waits for the answer to this request."""
        if self._waiting(request_id) is None:
            expected = "ids of approval requests that wait for an answer"
            raise wrong_value("item.approval_request_id", request_id, expected)

    def _waiting(self, request_id: str) -> _Call | None:
        waiting = (call for call in self._calls.values() if not call.running and call.outcome is None)
        return next((call for call in waiting if call.item.get("approval_request_id") == request_id), None)

    def approve(self, answer: Item) -> Step:
        """The user has decided: ``answer`` is an ``mcp_approval_response``."""
        call = self._waiting(answer["approval_request_id"])
        assert call is not None, "the answer was checked"
        if answer["approve"]:
            yield from self._start(call)
            return
        reason = f" {answer['reason']}" if answer.get("reason") else ""
        call.outcome = ToolFault("tool_execution_error", f"The user did not approve this call.{reason}")
        yield from self.settle(call.response)

    def returned(self, item_id: str, outcome: str | ToolFault) -> Step:
        """A tool has given its output, or has failed."""
        call = self._calls.get(item_id)
        if call is not None and call.running:
            call.running, call.outcome = False, outcome
            yield from self.settle(call.response)

    def settle(self, response: Response) -> Step:
        """Tell what came of the calls of ``response``, if it is done itself."""
        if response.state is not ResponseState.DONE:
            return
        over = [
            call for call in self._calls.values() if call.response is response and call.outcome is not None
        ]
        for call in over:
            del self._calls[call.item["id"]]
            yield from self._end(call)

    def _end(self, call: _Call) -> Step:
        failed = isinstance(call.outcome, ToolFault)
        if isinstance(call.outcome, ToolFault):
            logger.info("MCP tool of %s failed: %s", call.server.label, call.outcome.type)
            call.item["error"] = call.outcome.wire()
        else:
            call.item["output"] = call.outcome
        yield {"type": f"response.mcp_call.{'failed' if failed else 'completed'}", **call.where}
        yield from call.response.end_item(call.item, "incomplete" if failed else "completed")
        yield returned(call.item, call.response)

    def open_calls(self, response_id: str | None) -> bool:
        """Whether :meth:`cancel` would cancel something."""
        return bool(self._of(response_id))

    def cancel(self, response_id: str | None) -> Step:
        """End the open calls of this response. None: of all, but for those that wait for the user."""
        calls = self._of(response_id)
        for call in calls:
            if call.running:
                yield CancelTool(call.item["id"])
            call.running, call.outcome = False, CANCELLED
        for response in dict.fromkeys(call.response for call in calls):
            yield from self.settle(response)

    def _of(self, response_id: str | None) -> list[_Call]:
        return [
            call
            for call in self._calls.values()
            if call.outcome is None
            and (call.running if response_id is None else call.response.id == response_id)
        ]


def _tool_wire(tool: RemoteTool) -> dict[str, Any]:
    wire = {"name": tool.name, "description": tool.description, "input_schema": json.loads(tool.schema)}
    return wire | ({"annotations": json.loads(tool.annotations)} if tool.annotations else {})


def _approval_request(call: Item) -> Item:
    return {
        "id": call["approval_request_id"],
        "type": "mcp_approval_request",
        "status": "in_progress",
        "server_label": call["server_label"],
        "name": call["name"],
        "arguments": call["arguments"],
    }


def _free_name(server: Server, tool: RemoteTool, taken: set[str]) -> str:
    """The tool's own name, else with the server's label in front, else with a number behind."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool.name)
    full = f"{server.label}_{plain}"
    names = (f"{full[:60]}_{number}" for number in range(2, MOST_TOOLS + 2))
    return next(name for name in (plain[:64], full[:64], *names) if name not in taken)


def _offered(name: str, server: Server, tool: RemoteTool) -> Tool:
    context = f"{server.description}: " if server.description else ""
    return Tool(name, f"{context}{tool.description}", tool.schema)


def _chosen(config: ResponseConfig) -> ResponseConfig:
    """``tool_choice`` of type ``mcp``, in terms of the tools on offer; what is not there cannot be wanted."""
    if config.wanted is None:
        return config
    label, wanted = config.wanted
    names = [
        name
        for name, (server, tool) in config.remote.items()
        if server.label == label and wanted in ("", tool.name)
    ]
    if not names:
        return replace(config, tool_choice="auto")
    if wanted:
        return replace(config, tool_choice=names[0])
    tools = tuple(tool for tool in config.tools if tool.name in names)
    return replace(config, tools=tools, tool_choice="required")
