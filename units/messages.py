"""What travels the lines: frozen bodies, and the envelope that says which scope they belong to.

A stage yields bare bodies. A :class:`Notice` goes straight to the session; anything else goes to the
next stage, and from the last stage to the session. Only the runner and the session see envelopes.

Audio inside the ears is float32 mono at 16 kHz in [-1, 1]; audio that leaves the mouth is int16 mono
at the speech engine's own rate. Positions in milliseconds count from the first sample of the session.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from units.scope import CancelScope

Float32 = npt.NDArray[np.float32]
Int16 = npt.NDArray[np.int16]

EAR_RATE = 16_000
"""Sample rate of everything inside the ears, in Hz."""


COMMIT_MIN_MS = 100
"""A manual turn shorter than this is not committed."""


class Notice:
    """Base of bodies addressed to the session rather than to the next stage."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """A body and the piece of work it belongs to."""

    scope: CancelScope
    body: object


@dataclass(frozen=True, slots=True)
class End:
    """Closes the stream of one scope. Travels every queue exactly once, even when cancelled."""


@dataclass(frozen=True, slots=True)
class Failed(Notice):
    """A stage raised; the rest of its scope's stream is skipped."""

    stage: str
    reason: str
    """One sentence for people; no traceback."""


# --- into and along the ears ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Pcm:
    """Sound from the caller: float32 mono at 16 kHz, any length."""

    samples: Float32
    """Whoever sends it must not write to it afterwards."""


@dataclass(frozen=True, slots=True)
class Eagerness:
    """How soon a turn is over when a model has judged at its soft end whether the caller has finished."""

    threshold: float
    """Probability from which on the caller has finished."""
    finished_ms: int
    """Silence that ends the turn then."""
    unfinished_ms: int
    """Silence that ends it otherwise."""


@dataclass(frozen=True, slots=True)
class Listen:
    """How the voice activity stage is to listen from here on. The session sends it in the stream,
    so that it takes effect between two samples and needs no lock."""

    turn_detection: bool = True
    """False: no speech notices at all; sound is kept for a manual commit."""
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    soft_end_ms: int = 200
    """Silence after which the utterance is transcribed on speculation."""
    silence_ms: int = 500
    """Silence after which the turn is over, if no model has judged that."""
    eagerness: Eagerness | None = None
    """None: no model is asked."""
    live: bool = True
    """Send growing pieces of unfinished speech for live transcription."""
    language: str = ""
    """What the recogniser is to expect; "" for whatever it was set up with."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Manual turn: what was heard since the last commit or clear becomes an utterance."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Await:
    """Say when the caller has not spoken for this long, counted from here; 0: do not."""

    ms: int


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget what was heard so far and start the detector afresh."""


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    """A stretch of speech for the recogniser, from its padded start to now."""

    turn: int
    """Which turn of this session it belongs to; counts from 1."""
    revision: int
    """Grows with every soft end of the turn; a later one replaces an earlier one."""
    samples: Float32
    purpose: Literal["live", "settled", "final"]
    """``live``: unfinished, for a live transcript only. ``settled``: the beginning of a long turn, to be
    remembered; later pieces of the turn start after it. ``final``: all the rest, up to a soft end."""
    superseded: CancelScope
    """Cancelled by the voice activity stage when the caller went on speaking: work not worth doing."""
    language: str = ""
    before: int = 0
    """Samples of this turn that were settled earlier."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Sound that a client put into the conversation, for the recogniser: int16 mono at ``rate`` Hz."""

    number: int
    """Which one of this session; counts from 1."""
    samples: Int16
    rate: int
    language: str = ""


@dataclass(frozen=True, slots=True)
class Transcribed:
    """The recogniser's answer to one Speech."""

    turn: int
    revision: int
    text: str
    final: bool
    seconds: float
    """How much audio the turn holds so far."""


@dataclass(frozen=True, slots=True)
class SpeechStarted(Notice):
    turn: int
    audio_start_ms: int
    """Includes the prefix padding."""


@dataclass(frozen=True, slots=True)
class SpeechPaused(Notice):
    """Soft end: the caller has been silent for ``soft_end_ms``. The turn is not over yet."""

    turn: int
    revision: int
    audio_end_ms: int
    """Where the last speech was heard."""


@dataclass(frozen=True, slots=True)
class SpeechResumed(Notice):
    """The caller went on speaking before the turn's deadline."""

    turn: int


@dataclass(frozen=True, slots=True)
class SpeechEnded(Notice):
    """The caller has been silent for long enough: the turn is over."""

    turn: int
    audio_end_ms: int
    """Includes the silence."""


@dataclass(frozen=True, slots=True)
class StayedSilent(Notice):
    """Answer to :class:`Await`, when the caller did not speak. Comes once."""

    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class Committed(Notice):
    """Answer to :class:`Commit`: which turn and revision the transcript will be of."""

    item_id: str
    turn: int
    revision: int
    audio_ms: int
    """Below :data:`COMMIT_MIN_MS` nothing is committed: no transcript follows, and the sound is kept."""


@dataclass(frozen=True, slots=True)
class TranscriptDelta(Notice):
    """More words of the live transcript of ``turn``; deltas only ever append."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptGuess(Notice):
    """What the recogniser makes of the turn so far; the next guess may differ."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptFinal(Notice):
    """What the recogniser makes of the turn as of ``revision``. Empty when nothing was said."""

    turn: int
    revision: int
    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TranscriptFailed(Notice):
    """The recogniser failed on this utterance; the session goes on."""

    turn: int
    revision: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecordingHeard(Notice):
    """Answer to one :class:`Recording`."""

    number: int
    text: str
    seconds: float
    failure: str | None = None
    """Why there are no words: the recogniser failed."""


# --- the conversation as a model sees it ---------------------------------------------------------


class Image(NamedTuple):
    """A picture that the user shows."""

    url: str
    """A data URL with a PNG or JPEG."""
    detail: str = "auto"
    """How closely to look: ``auto``, ``low`` or ``high``."""


@dataclass(frozen=True, slots=True)
class Message:
    """One thing said."""

    role: Literal["system", "user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()
    """Only for the user."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model asks for a function. Also what an engine yields, once its arguments are complete."""

    call_id: str
    name: str
    arguments: str
    """A JSON object as text."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the function returned, as free text."""

    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str = ""
    parameters: str = "{}"
    """JSON Schema of the arguments, as text (immutable)."""


@dataclass(frozen=True, slots=True)
class Voice:
    """How a response is to be spoken."""

    name: str
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Generate:
    """A request for one response: an immutable snapshot of all that the model may see."""

    history: tuple[Message | ToolCall | ToolResult, ...] = ()
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """``auto``, ``none``, ``required`` or the name of the one function to call."""
    parallel_tool_calls: bool = True
    """False: at most one call; those after the first are dropped."""
    max_output_tokens: int | None = None
    voice: Voice | None = field(default_factory=lambda: Voice("default"))
    """None: answer in text only."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """What the next request will probably begin with: a local model can read it before it is asked."""

    request: Generate


# --- along and out of the mouth ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """Speak ``text`` as it stands, without asking the model: an apology, say."""

    text: str
    voice: Voice | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Opens a response's stream along the mouth: how it is to be spoken, None for text only."""

    voice: Voice | None


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of streamed text, any length."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The last thing a language model yields: why it stopped and what it used."""

    reason: Literal["stop", "length", "content_filter"] = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta(Notice):
    """More text of the answer, as it goes into the transcript. Deltas concatenate to the whole."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalled(Notice):
    """The answer contains this call; in order with the text around it."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class TextFinished(Notice):
    """No more text or calls will come in this response."""

    finish: Finish


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece of the answer to be spoken in one go.

    ``text`` is the stretch of transcript that it covers: the sentences of a response concatenate to
    its transcript. ``spoken`` is what the voice is given (markup removed, numbers spelt out).
    """

    text: str
    spoken: str
    voice: Voice


@dataclass(frozen=True, slots=True)
class Said:
    """What was said, typed, called or returned, once that is certain. For whoever writes a session down."""

    item_id: str
    role: Literal["user", "assistant", "system", "tool"]
    kind: Literal["speech", "text", "tool_call", "tool_result", "approval"]
    text: str
    """The words that were heard; of a call its arguments as the model wrote them, of a result the output."""
    response_id: str = ""
    interrupted: bool = False
    """There was more of it, that nobody heard."""
    name: str = ""
    """Of a tool."""
    tool_call_id: str = ""
    error: str = ""
    """Why there are no words, or no output."""


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """Speech, on its way to be heard: int16 mono at ``rate`` Hz.

    The first chunk of a sentence carries the transcript it speaks in ``text``, later ones carry "".
    """

    samples: Int16
    rate: int
    text: str = ""
