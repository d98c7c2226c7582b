"""Voice to voice: from the caller's last loud sample to the first sound of the answer at the caller's end.

The first number is what a caller waits. The others say where the time goes, all counted from the caller's
last loud sample; a part that comes before the end of the turn was done on speculation.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.caller import HEARD_RATE, LOUD, Caller, Said
from benchmarks.clips import clips, ending
from benchmarks.figures import Figure
from benchmarks.served import SCRIPTED, SEMANTIC, serving
from server.track import FRAME
from units.messages import Int16

Progress = Callable[[str], None]

OVERHEAD_MS = 80.0
"""What the pipeline and the network may add to the silence window."""

REAL_TARGET_MS = 2000.0

SEMANTIC_MS = 300.0
"""Silence that ends the turn of a caller who has finished, under semantic_vad."""

FINISHED = (0, 3)
"""The clips after which the model is sure that the caller has finished, even without their softest sounds."""

SEMANTIC_VAD = {
    "type": "session.update",
    "session": {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}},
}

TIMED = ("--stt", "timed-faster-whisper", "--llm-backend", "timed-llama-cpp", "--tts", "timed-kokoro")
"""The default engines, with the stop-watch of :mod:`benchmarks.timed_server` around them."""

AS_THE_PAGE = {
    "type": "session.update",
    "session": {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}},
}
"""What the page asks for: transcripts, which are live, and compete with everything else for the cores."""


async def voice_scripted(quick: bool, progress: Progress) -> list[Figure]:
    """Engines that answer at once: what is left is the silence window and our own share."""
    spoken = [ending(clip, 1.5) for clip in clips()]
    turns = 5 if quick else 30
    async with serving(*SCRIPTED) as served, Caller(served.url) as call:
        window = _window_ms((await call.opened()).body)
        taken = []
        for turn in range(turns):
            progress(f"voice-scripted: turn {turn + 1} of {turns}")
            taken.append(await _turn(call, spoken[turn % len(spoken)]))
            call.send({"type": "output_audio_buffer.clear"})
    return _until_the_sound(f"voice to voice, scripted engines (window {window:.0f} ms)", window, taken)


async def voice_semantic(quick: bool, progress: Progress) -> list[Figure]:
    """The same with semantic_vad, for a caller who has audibly finished; others are waited for."""
    spoken = [clips()[n] for n in FINISHED]
    turns = 4 if quick else 30
    async with serving(*SEMANTIC) as served, Caller(served.url) as call:
        await call.opened()
        call.send(SEMANTIC_VAD)
        await call.event("session.updated")
        taken = []
        for turn in range(turns):
            progress(f"voice-semantic: turn {turn + 1} of {turns}")
            taken.append(await _turn(call, spoken[turn % len(spoken)]))
            call.send({"type": "output_audio_buffer.clear"})
    return _until_the_sound("voice to voice, scripted engines, semantic_vad", SEMANTIC_MS, taken)


def _until_the_sound(title: str, window: float, taken: list[dict[str, float]]) -> list[Figure]:
    return [
        Figure(title, "ms", tuple(each["first sound"] for each in taken), window + OVERHEAD_MS),
        Figure("  end of turn (speech_stopped)", "ms", tuple(each["end of turn"] for each in taken)),
        Figure(
            "  end of turn to first sound",
            "ms",
            tuple(each["first sound"] - each["end of turn"] for each in taken),
        ),
    ]


async def voice_real(quick: bool, progress: Progress) -> list[Figure]:
    """The default models, and the parts of the way."""
    spoken = clips()
    rounds = 1 if quick else 4
    taken, pauses = [], []
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder, "marks")
        program = ("-m", "benchmarks.timed_server", str(marks))
        async with serving(*TIMED, units=2, program=program) as served:
            for round in range(rounds):
                async with Caller(served.url) as call:
                    await call.opened()
                    call.send(AS_THE_PAGE)
                    await call.event("session.updated")
                    for n, clip in enumerate(spoken):
                        progress(f"voice-real: turn {round * len(spoken) + n + 1} of {rounds * len(spoken)}")
                        taken.append(await _turn(call, clip, marks))
                        started = await call.event("output_audio_buffer.started")
                        await call.event("output_audio_buffer.stopped", within=120)
                        pauses.append(1000 * longest_pause(call.heard().since(started.at).samples))
        lengths = first_lengths(read_marks(marks))
    return [
        *_parts(taken),
        Figure("  longest pause within the answer", "ms", tuple(pauses)),
        Figure("  length of the first clause", "chars", tuple(lengths)),
    ]


def longest_pause(samples: Int16) -> float:
    """The longest silence between two sounds of a recording at 48 kHz, in seconds; 0 when there is none."""
    hop = HEARD_RATE // 100
    frames = np.abs(samples[: len(samples) // hop * hop].astype(np.int32)).reshape(-1, hop)
    loud = np.flatnonzero(frames.max(axis=1) > LOUD)
    return float(np.diff(loud).max(initial=1) - 1) * hop / HEARD_RATE


def _parts(taken: list[dict[str, float]]) -> list[Figure]:
    names = dict.fromkeys(name for each in taken for name in each)
    figures = [
        Figure(f"  {name}", "ms", tuple(each[name] for each in taken if name in each)) for name in names
    ]
    whole = Figure(
        "voice to voice, default models",
        "ms",
        tuple(each["first sound"] for each in taken),
        REAL_TARGET_MS,
    )
    return [whole, *figures]


async def _turn(call: Caller, spoken: Int16, marks: Path | None = None) -> dict[str, float]:
    """Say something and wait for the answer's first sound. Milliseconds after the end of speech, by part."""
    await call.silence(0.2)
    said = call.say(_after_a_while(spoken))
    await said.done()
    sound = await call.sound(said.ended, within=60)
    stopped = await call.event("input_audio_buffer.speech_stopped", after=said.began)
    times = {"end of turn": stopped.at}
    if marks is not None:
        times |= chain(read_marks(marks), sound)
        if (packet := call.first_packet(said.ended)) is not None:
            times["first packet"] = packet
    times["first sound"] = sound
    return _relative(times, said)


def _relative(times: dict[str, float], said: Said) -> dict[str, float]:
    return {name: 1000 * (at - said.ended) for name, at in times.items()}


def _after_a_while(spoken: Int16) -> Int16:
    """Silence of a random number of packets in front, so that nothing falls into step with anything."""
    return np.pad(spoken, (FRAME * random.randint(5, 25), 0))


def _window_ms(created: dict[str, object]) -> float:
    session = created["session"]
    assert isinstance(session, dict)
    return float(session["audio"]["input"]["turn_detection"]["silence_duration_ms"])


@dataclass(frozen=True, slots=True)
class Mark:
    """What an engine did, and when."""

    at: float
    engine: str
    what: str
    size: int = 0


def read_marks(path: Path) -> list[Mark]:
    """All marks so far, in order of time."""
    lines = path.read_text().splitlines()
    return sorted((Mark(**json.loads(line)) for line in lines), key=lambda mark: mark.at)


def first_lengths(marks: Iterable[Mark]) -> list[int]:
    """Characters of the first piece that was spoken of each answer."""
    lengths, prompted = [], False
    for mark in marks:
        if (mark.engine, mark.what) == ("llm", "asked"):
            prompted = True
        elif prompted and (mark.engine, mark.what) == ("tts", "asked"):
            prompted = False
            lengths.append(mark.size)
    return lengths


def chain(marks: Iterable[Mark], sound: float) -> dict[str, float]:
    """The engines' work that led to the sound at ``sound``, found backwards from it; {} if there is none."""
    made = [mark for mark in marks if mark.at < sound]

    def last(engine: str, what: str, before: float) -> float:
        times = [mark.at for mark in made if (mark.engine, mark.what) == (engine, what) and mark.at <= before]
        return max(times, default=-1.0)

    prompted = last("llm", "asked", sound)
    heard = last("stt", "done", prompted)
    first = {(mark.engine, mark.what): mark.at for mark in reversed(made) if mark.at >= prompted}
    parts = {
        "recognition begins": last("stt", "asked", heard),
        "words known": heard,
        "model asked": prompted,
        "first token": first.get(("llm", "first"), -1.0),
        "first clause to the voice": first.get(("tts", "asked"), -1.0),
        "first audio from the voice": first.get(("tts", "first"), -1.0),
    }
    return parts if min(parts.values()) >= 0 else {}
