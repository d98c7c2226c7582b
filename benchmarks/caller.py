"""A caller: a WebRTC client that speaks samples, records what it hears, and knows when each of both happened.

::

    async with Caller("http://localhost:8080") as call:
        await call.opened()                         # session.created
        said = call.say(samples, rate=16_000)       # int16 or float32 mono
        done = await call.event("response.done")
        call.heard().samples                        # int16 mono at 48 kHz

All times are ``time.monotonic()``, and ``within`` is how many seconds to wait at most. What the caller says
leaves on a 20 ms clock; between utterances it is silent, as an open microphone is. A frame leaves when its
last sample has been spoken, so its sample ``i`` was spoken at ``left - 20 ms + (i + 1) / rate``: that is what
:class:`Said` tells. What the caller hears counts from the arrival of its packet: the receiver's jitter buffer
is replaced (:mod:`server.jitter`), so that nothing is held back unless a packet is missing.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

import av
import numpy as np
import numpy.typing as npt
from aiohttp import ClientSession
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError

from server.jitter import adopt
from server.track import FRAME, PERIOD, RATE, OpusEncoder, silent_frame
from units.messages import Float32, Int16

HEARD_RATE = 48_000
"""Sample rate of what a caller hears, in Hz."""

LOUD = 328
"""A sample above this is to be heard: -40 dB of full scale, int16."""

CALLS_PATH = "/v1/realtime/calls"
_TIME_BASE = Fraction(1, 48_000)


class CallRefused(Exception):
    """The server did not take the call."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Event:
    """A server event, and when it arrived."""

    at: float
    body: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.body[key]


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """A recording: int16 mono at 48 kHz, and the arrival of each 20 ms frame of it."""

    samples: Int16
    times: npt.NDArray[np.float64]
    """Arrival of each frame of 960 samples."""

    def since(self, at: float) -> Heard:
        """What arrived at ``at`` or later."""
        first = int(np.searchsorted(self.times, at))
        return Heard(self.samples[first * 960 :], self.times[first:])


class Said:
    """An utterance on its way out."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._left: list[float] = []
        self._done = asyncio.Event()

    async def done(self) -> None:
        """Wait until its last frame has left."""
        await self._done.wait()

    @property
    def began(self) -> float:
        """When the first sample was spoken."""
        return self._spoken(0)

    @property
    def ended(self) -> float:
        """When the last sample was spoken."""
        return self._spoken(self._samples - 1)

    def at(self, seconds: float) -> float:
        """When the sample ``seconds`` after the first one was spoken."""
        return self._spoken(round(seconds * RATE))

    def left(self, at: float, *, last: bool) -> None:
        """A frame of it left."""
        self._left.append(at)
        if last:
            self._done.set()

    def _spoken(self, sample: int) -> float:
        frame, within = divmod(sample, FRAME)
        return self._left[frame] - PERIOD + (within + 1) / RATE


class Microphone(MediaStreamTrack):  # type: ignore[misc]
    """The outgoing track: what there is to say, else silence, every 20 ms."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._encoder = OpusEncoder()
        self._frames: deque[tuple[Int16, Said, bool]] = deque()
        self._silence = np.zeros(FRAME, np.int16)
        self._start = 0.0
        self._count = 0

    def say(self, samples: Int16) -> Said:
        """Say int16 mono at 24 kHz, after what waits to be said; the last frame is filled up with silence."""
        said = Said(len(samples))
        frames = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME)
        self._frames.extend((frame, said, n == len(frames)) for n, frame in enumerate(frames, 1))
        return said

    def hush(self) -> None:
        """Say nothing more of what waits to be said."""
        self._frames.clear()

    async def recv(self) -> av.Packet:
        """The next 20 ms, encoded, when they are due."""
        now = time.monotonic()
        self._start = self._start or now
        if (wait := self._start + self._count * PERIOD - now) > 0:
            await asyncio.sleep(wait)
        if self.readyState != "live":
            raise MediaStreamError
        packet = self._packet()
        packet.pts = packet.dts = self._count * 960
        packet.time_base = _TIME_BASE
        self._count += 1
        return packet

    def _packet(self) -> av.Packet:
        if not self._frames:
            return self._encoder.encode(self._silence)
        samples, said, last = self._frames.popleft()
        packet = self._encoder.encode(samples)
        said.left(time.monotonic(), last=last)
        return packet


class Ear:
    """Decodes and records what arrives, unless told not to ``keep`` it."""

    def __init__(self, keep: bool = True) -> None:
        self._keep = keep
        self._codec = av.CodecContext.create("libopus", "r")
        self._codec.format, self._codec.layout, self._codec.sample_rate = "s16", "mono", HEARD_RATE
        self._frames: list[Int16] = []
        self._times: list[float] = []
        self._peaks: list[int] = []
        self._made: list[float] = []
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def packet(self, _payload_type: int, data: bytes, _timestamp: int) -> None:
        """One Opus packet, in order."""
        at = time.monotonic()
        if self._keep:
            for frame in self._codec.decode(av.Packet(data)):
                samples = frame.to_ndarray()[0]
                self._frames.append(samples)
                self._times.append(at)
                self._peaks.append(int(np.abs(samples.astype(np.int32)).max()))
            if data != silent_frame():
                self._made.append(at)
        self._next.set_result(None)
        self._next = asyncio.get_running_loop().create_future()

    async def next_frame(self) -> None:
        """Wait for a packet."""
        await asyncio.shield(self._next)

    def heard(self) -> Heard:
        """All there is so far."""
        samples = np.concatenate(self._frames) if self._frames else np.zeros(0, np.int16)
        return Heard(samples, np.array(self._times))

    def first_loud(self, after: float) -> float | None:
        """Arrival of the first frame after ``after`` with a sound in it."""
        first = bisect_right(self._times, after)
        return next(
            (at for at, peak in zip(self._times[first:], self._peaks[first:], strict=True) if peak > LOUD),
            None,
        )

    def first_made(self, after: float) -> float | None:
        """Arrival of the first packet after ``after`` that was made of speech, be it quiet still."""
        return next((at for at in self._made[bisect_right(self._made, after) :]), None)

    def last_loud(self) -> float | None:
        """Arrival of the last frame with a sound in it."""
        pairs = zip(reversed(self._times), reversed(self._peaks), strict=True)
        return next((at for at, peak in pairs if peak > LOUD), None)


class Caller:
    """One call to the server at ``url``. Connected inside its ``async with`` block.

    :param record: keep what is heard; without, arriving packets are not even decoded.
    """

    def __init__(self, url: str, *, record: bool = True) -> None:
        self.url = url.rstrip("/")
        self.events: list[Event] = []
        """Everything that the server sent, in order."""
        self.location = ""
        """The call's address, as the server gave it."""
        self.connected = asyncio.Event()
        self.ended = asyncio.Event()
        """The connection has failed or was closed, by either side."""
        self._microphone = Microphone()
        self._ear = Ear(record)
        self._taken: set[int] = set()
        self._news = asyncio.Event()
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._connection.on("connectionstatechange", self._on_state)
        self._channel = self._connection.createDataChannel("oai-events")
        self._channel.on("message", self._on_message)
        transceiver = self._connection.addTransceiver(self._microphone, "sendrecv")
        if not adopt(transceiver.receiver, self._ear.packet):
            raise RuntimeError("this version of aiortc does not let packets be timed")

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self, within: float = 15.0) -> None:
        """Place the call. Raises CallRefused, and TimeoutError when it does not connect."""
        await self._connection.setLocalDescription(await self._connection.createOffer())
        offer = self._connection.localDescription.sdp
        headers = {"Content-Type": "application/sdp"}
        async with (
            ClientSession() as http,
            http.post(self.url + CALLS_PATH, data=offer, headers=headers) as response,
        ):
            answer = await response.text()
            if response.status != 201:
                raise CallRefused(response.status, answer)
            self.location = response.headers["Location"]
        await self._connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        try:
            async with asyncio.timeout(within):
                await self.connected.wait()
        except TimeoutError:
            state = self._connection.connectionState
            raise TimeoutError(f"not connected within {within:g} s, but {state}") from None

    async def close(self) -> None:
        """Hang up. Idempotent."""
        await self._connection.close()

    # --- speaking and hearing --------------------------------------------------------------------

    def say(self, samples: Int16 | Float32, rate: int = RATE) -> Said:
        """Say ``samples`` (mono; int16, or float32 in [-1, 1]), beginning with the next frame."""
        return self._microphone.say(at_rate(samples, rate, RATE))

    def hush(self) -> None:
        """Say nothing more of what waits to be said."""
        self._microphone.hush()

    def heard(self) -> Heard:
        """All that has been heard so far."""
        return self._ear.heard()

    async def sound(self, after: float = 0.0, within: float = 15.0) -> float:
        """Wait for a sound that arrives after ``after``; when it arrived. Raises TimeoutError."""
        try:
            async with asyncio.timeout(within):
                while (at := self._ear.first_loud(after)) is None:
                    await self._ear.next_frame()
        except TimeoutError:
            raise TimeoutError(f"no sound within {within:g} s") from None
        return at

    def first_packet(self, after: float) -> float | None:
        """When the first packet with speech arrived after ``after``, be it quiet still; None: not yet."""
        return self._ear.first_made(after)

    async def silence(self, seconds: float = 0.5, within: float = 60.0) -> float:
        """Wait until nothing has been heard for ``seconds``; when the last sound arrived (0.0: never).

        Raises TimeoutError.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(within):
                while time.monotonic() - max(began, self._ear.last_loud() or 0.0) < seconds:
                    await self._ear.next_frame()
        except TimeoutError:
            raise TimeoutError(f"no silence within {within:g} s") from None
        return self._ear.last_loud() or 0.0

    # --- events ----------------------------------------------------------------------------------

    async def opened(self) -> Event:
        """Wait for ``session.created``."""
        return await self.event("session.created")

    def send(self, event: dict[str, Any] | str) -> None:
        """Send a client event. The data channel must be open, as it is after :meth:`opened`."""
        self._channel.send(event if isinstance(event, str) else json.dumps(event))

    async def event(self, kind: str, within: float = 15.0, after: float = 0.0) -> Event:
        """The earliest event of type ``kind`` that this method has not returned yet; waits for it.

        Those that arrived before ``after`` are passed over. Raises TimeoutError saying what came instead.
        """
        try:
            async with asyncio.timeout(within):
                while (index := self._find(kind, after)) is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            came = ", ".join(event["type"] for event in self.events[-12:])
            raise TimeoutError(f"no {kind} within {within:g} s; the last events were: {came}") from None
        self._taken.add(index)
        return self.events[index]

    def _find(self, kind: str, after: float) -> int | None:
        for index, event in enumerate(self.events):
            if index not in self._taken and event["type"] == kind and event.at >= after:
                return index
        return None

    def _on_message(self, message: str) -> None:
        self.events.append(Event(time.monotonic(), json.loads(message)))
        self._news.set()

    def _on_state(self) -> None:
        state = self._connection.connectionState
        if state == "connected":
            self.connected.set()
        elif state in ("failed", "closed"):
            self.ended.set()


def at_rate(samples: Int16 | Float32, rate: int, wanted: int) -> Int16:
    """Mono ``samples`` at ``rate`` Hz as int16 at ``wanted`` Hz, converted in one go."""
    if samples.dtype != np.int16:
        samples = (np.clip(samples.astype(np.float32), -1.0, 1.0) * np.float32(32767)).astype(np.int16)
    if rate == wanted:
        return samples.astype(np.int16)
    frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
    frame.sample_rate = rate
    resampler = av.AudioResampler(format="s16", layout="mono", rate=wanted)
    parts = [part.to_ndarray()[0] for given in (frame, None) for part in resampler.resample(given)]
    return np.concatenate(parts).astype(np.int16)
