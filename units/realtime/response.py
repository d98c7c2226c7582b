"""One response: from created to done, and the events between, in the order that clients rely on.

It is HELD while it is speculation: what the mouth makes is kept, not shown. ``release`` makes it LIVE
and shows what was kept. DONE is for good.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Iterator
from enum import Enum, auto
from typing import Any

from units.messages import Audio, Finish, ToolCall
from units.playout import CHARACTER_SECONDS, words_within
from units.realtime.config import ResponseConfig
from units.realtime.conversation import Conversation, Item
from units.realtime.effects import FinishPlaying, Play, SendAudio
from units.realtime.errors import ProtocolError
from units.scope import CancelScope

logger = logging.getLogger(__name__)

Wire = dict[str, Any]


class ResponseState(Enum):
    HELD = auto()
    LIVE = auto()
    DONE = auto()


_NEXT = {
    (ResponseState.HELD, "release"): ResponseState.LIVE,
    (ResponseState.HELD, "finish"): ResponseState.DONE,
    (ResponseState.LIVE, "finish"): ResponseState.DONE,
}


class Response:
    """A response and its items. Yields server events (without their ``event_id``) and playout effects.

    ``conversation`` is None for an out-of-band response, whose items enter no conversation. With
    ``sends_audio`` its sound travels in events, for a client that plays it.
    """

    def __init__(
        self,
        id: str,
        scope: CancelScope,
        config: ResponseConfig,
        conversation: Conversation | None,
        new_id: Callable[[str], str],
        *,
        sends_audio: bool = False,
    ) -> None:
        self.id = id
        self.scope = scope
        self.config = config
        self.state = ResponseState.HELD
        self.held: list[object] = []
        self.failure: ProtocolError | None = None
        self.apologised = False
        self.message: Item | None = None
        self.seconds = 0.0
        """How much speech has been made."""
        self.queued_text = ""
        """The beginning of the transcript that is in the playout or was heard."""
        self.heard_text: str | None = None
        """What was heard until the client silenced it; what it says from then on is not to be heard."""
        self.finish_reason: Finish | None = None
        self.status = ""
        """How it ended, as in ``response.done``; "" while it has not."""
        self._sends_audio = sends_audio
        self._passages: list[tuple[str, float]] = []  # what was made of the sound: text, and when it begins
        self._conversation = conversation
        self._new_id = new_id
        self._output: list[Item] = []
        self._text = ""

    def _move(self, event: str) -> None:
        after = _NEXT[self.state, event]
        about = {"turn": self.id}
        logger.debug("response %s: %s -> %s", self.id, self.state.name, after.name, extra={"about": about})
        self.state = after

    def release(self) -> Iterator[Wire]:
        self._move("release")
        yield {"type": "response.created", "response": self._wire("in_progress", None, None)}

    def add_text(self, delta: str) -> Iterator[Wire]:
        if self.message is None:
            yield from self._open_message()
        self._text += delta
        kind = "output_audio_transcript" if self.config.spoken else "output_text"
        yield {"type": f"response.{kind}.delta", **self._part_ids, "delta": delta}

    def add_audio(self, audio: Audio) -> Iterator[Wire | Play | SendAudio]:
        if self.message is None:  # never without text in practice; keeps the order all the same
            yield from self._open_message()
        assert self.message is not None
        self.queued_text += audio.text
        if audio.text:
            self._passages.append((audio.text, self.seconds))
        self.seconds += len(audio.samples) / audio.rate
        if self._sends_audio:
            yield self._sound(audio)
        else:
            yield Play(self.id, self.message["id"], audio)

    def _sound(self, audio: Audio | None) -> SendAudio:
        event = {"type": "response.output_audio.delta", **self._part_ids}
        return SendAudio(event, audio, self.config.output["format"]["type"])

    def text_until(self, seconds: float) -> str:
        """The whole words that are said in the first ``seconds`` of the sound."""
        said = ""
        ends = [*(begin for _, begin in self._passages[1:]), self.seconds]
        if self._passages and self.status != "completed":  # the last one may have been meant to be longer
            text, begin = self._passages[-1]
            ends[-1] = max(ends[-1], begin + len(text) * CHARACTER_SECONDS)
        for (text, begin), end in zip(self._passages, ends, strict=False):
            if seconds >= end:
                said += text
            elif seconds > begin:
                said += words_within(text, (seconds - begin) / (end - begin))
        return said

    def add_call(self, call: ToolCall) -> Generator[Wire, None, Item]:
        """Returns the item."""
        item: Item = {
            "id": self._new_id("item"),
            "object": "realtime.item",
            "type": "function_call",
            "status": "in_progress",
            "name": call.name,
            "call_id": call.call_id,
            "arguments": "",
        }
        index = len(self._output)
        yield from self._add_item(item)
        where = {
            "response_id": self.id,
            "item_id": item["id"],
            "output_index": index,
            "call_id": call.call_id,
        }
        item["arguments"] = call.arguments
        kind = "response.function_call_arguments"
        yield {"type": f"{kind}.delta", **where, "delta": call.arguments}
        yield {"type": f"{kind}.done", **where, "name": call.name, "arguments": call.arguments}
        yield from self.end_item(item, "completed")
        return item

    def add_mcp_call(self, item: Item, arguments: str) -> Iterator[Wire]:
        """The item stays open: the tool may take longer than the response. See :meth:`end_item`."""
        yield from self._add_item(item)
        where = {"response_id": self.id, "item_id": item["id"], "output_index": self.index(item)}
        item["arguments"] = arguments
        kind = "response.mcp_call_arguments"
        yield {"type": f"{kind}.delta", **where, "delta": arguments, "obfuscation": ""}
        yield {"type": f"{kind}.done", **where, "arguments": arguments}

    def add_approval_request(self, item: Item) -> Iterator[Wire]:
        """An item that is whole from the start."""
        yield from self._add_item(item)
        yield from self.end_item(item, "completed")

    def index(self, item: Item) -> int:
        """The item's place in the output."""
        return next(index for index, each in enumerate(self._output) if each is item)

    def end(self, status: str, details: Wire | None) -> Iterator[Wire | FinishPlaying | SendAudio]:
        """Close what is open, then ``response.done``. Nothing of this response follows but its sound."""
        live = self.state is ResponseState.LIVE
        self._move("finish")
        self.scope.cancel()
        self.status = status
        if not live:
            return
        if self.message is not None:
            yield from self._close_message("completed" if status == "completed" else "incomplete")
        yield {"type": "response.done", "response": self._wire(status, details, self._usage())}
        yield FinishPlaying(self.id)

    @property
    def text(self) -> str:
        """The whole text so far."""
        return self._text

    def _open_message(self) -> Iterator[Wire]:
        item: Item = {
            "id": self._new_id("item"),
            "object": "realtime.item",
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        self.message = item
        self._message_index = len(self._output)
        yield from self._add_item(item)
        yield {"type": "response.content_part.added", **self._part_ids, "part": self._part("")}

    def _close_message(self, status: str) -> Iterator[Wire | SendAudio]:
        item, text = self.message, self._text
        assert item is not None
        if self.config.spoken:
            if self._sends_audio:
                yield self._sound(None)
            yield {"type": "response.output_audio.done", **self._part_ids}
            yield {"type": "response.output_audio_transcript.done", **self._part_ids, "transcript": text}
            item["content"] = [{"type": "output_audio", "transcript": text}]
        else:
            yield {"type": "response.output_text.done", **self._part_ids, "text": text}
            item["content"] = [{"type": "output_text", "text": text}]
        yield {"type": "response.content_part.done", **self._part_ids, "part": self._part(text)}
        yield from self.end_item(item, status)

    def _add_item(self, item: Item) -> Iterator[Wire]:
        index = len(self._output)
        self._output.append(item)
        yield {
            "type": "response.output_item.added",
            "response_id": self.id,
            "output_index": index,
            "item": copy.deepcopy(item),
        }
        if self._conversation is not None:
            self._conversation.insert(item)
            yield self._conversation_event("added", item)

    def end_item(self, item: Item, status: str) -> Iterator[Wire]:
        """The item is final; that of a tool may be so only after ``response.done``."""
        item["status"] = status
        if self._conversation is not None and self._conversation.holds(item):
            yield self._conversation_event("done", item)
        yield {
            "type": "response.output_item.done",
            "response_id": self.id,
            "output_index": self.index(item),
            "item": copy.deepcopy(item),
        }

    def _conversation_event(self, what: str, item: Item) -> Wire:
        assert self._conversation is not None
        return {
            "type": f"conversation.item.{what}",
            "previous_item_id": self._conversation.previous_id(item["id"]),
            "item": copy.deepcopy(item),
        }

    @property
    def _part_ids(self) -> Wire:
        assert self.message is not None
        return {
            "response_id": self.id,
            "item_id": self.message["id"],
            "output_index": self._message_index,
            "content_index": 0,
        }

    def _part(self, text: str) -> Wire:
        if self.config.spoken:
            return {"type": "audio", "transcript": text}
        return {"type": "text", "text": text}

    def _wire(self, status: str, details: Wire | None, usage: Wire | None) -> Wire:
        limit = self.config.max_output_tokens
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "output": copy.deepcopy(self._output) if usage is not None else [],
            "conversation_id": None if self._conversation is None else self._conversation.id,
            "output_modalities": list(self.config.modalities),
            "max_output_tokens": "inf" if limit is None else limit,
            "audio": {"output": copy.deepcopy(self.config.output)},
            "usage": usage,
            "metadata": self.config.metadata,
        }

    def _usage(self) -> Wire:
        finish = self.finish_reason or Finish()
        cached = {"text_tokens": finish.cached_tokens, "audio_tokens": 0, "image_tokens": 0}
        return {
            "total_tokens": finish.input_tokens + finish.output_tokens,
            "input_tokens": finish.input_tokens,
            "output_tokens": finish.output_tokens,
            "input_token_details": {
                "text_tokens": finish.input_tokens,
                "audio_tokens": 0,
                "image_tokens": 0,
                "cached_tokens": finish.cached_tokens,
                "cached_tokens_details": cached,
            },
            "output_token_details": {"text_tokens": finish.output_tokens, "audio_tokens": 0},
        }
