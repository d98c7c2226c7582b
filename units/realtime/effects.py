"""What the service wants done. The session driver performs effects in order, on the loop thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from units.messages import Audio, Await, Clear, Commit, Generate, Int16, Listen, Prepare, Said, Say
from units.realtime.servers import Server
from units.scope import CancelScope


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Send this server event to the client."""

    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Submit:
    """Give this work to the mouth, under ``scope``. ``aside``: it must not wait for what is being said."""

    scope: CancelScope
    work: Generate | Say | Prepare
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Hear:
    """Put this into the ears' stream."""

    body: Listen | Clear | Commit | Await


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """More sound from the client: int16 mono at ``rate`` Hz."""

    samples: Int16
    rate: int


@dataclass(frozen=True, slots=True, eq=False)
class Recognise:
    """Have the ears find the words in a recording: int16 mono at ``rate`` Hz."""

    number: int
    samples: Int16
    rate: int
    language: str


@dataclass(frozen=True, slots=True)
class Play:
    """Append speech to the output queue under the response's id."""

    response_id: str
    item_id: str
    audio: Audio


@dataclass(frozen=True, slots=True, eq=False)
class SendAudio:
    """Send this server event with ``audio`` as its ``delta``, to a client that plays the sound itself.

    None: that was all; send what was held back. ``format`` is the name of the session's output format.
    """

    event: dict[str, Any]
    audio: Audio | None
    format: str


@dataclass(frozen=True, slots=True)
class FinishPlaying:
    """No more speech will come for this response."""

    response_id: str


@dataclass(frozen=True, slots=True)
class FlushPlayout:
    """Forget all speech that was not heard yet; the driver answers with ``service.flushed``."""


@dataclass(frozen=True, slots=True)
class StopPlaying:
    """A client that plays the sound itself plays no more of this item than its first ``audio_end_ms``.

    Without an item: nothing at all from now on. There is nothing to do, but to know it.
    """

    item_id: str = ""
    audio_end_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListTools:
    """Ask an MCP server what tools it has; the driver answers with ``service.tools_listed``."""

    item_id: str
    server: Server


@dataclass(frozen=True, slots=True)
class CallTool:
    """Have an MCP server run a tool; the driver answers with ``service.tool_returned``.

    ``arguments`` as the model wrote them: meant to be a JSON object.
    """

    item_id: str
    server: Server
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CancelTool:
    """Nobody wants the result of this call any more; there is no answer to it."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Close:
    """End the session."""

    reason: str


Effect = (
    SendEvent
    | Submit
    | Hear
    | Append
    | Recognise
    | Play
    | SendAudio
    | FinishPlaying
    | FlushPlayout
    | StopPlaying
    | Said
    | ListTools
    | CallTool
    | CancelTool
    | Close
)
