"""Small stand-ins for a unit and its session, and the client's end of a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from aiohttp import ClientSession
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCIceServer,
    RTCIceTransportPolicy,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError

from server.peer import Transport
from units.messages import Float32, Int16
from units.observe import Observer
from units.pool import PoolFull
from units.realtime.errors import ProtocolError
from units.realtime.service import RealtimeService, ServiceConfig, random_id
from units.scope import CancelScope


class Tone:
    """An output queue that holds a sine wave."""

    def __init__(self, seconds: float = 0.0, rate: int = 24_000, hertz: float = 300.0) -> None:
        self.sample_rate = rate
        self._samples = np.zeros(0, dtype=np.int16)
        self.hertz = hertz
        self.pulled = 0
        self.say(seconds)

    def say(self, seconds: float) -> None:
        time = np.arange(round(seconds * self.sample_rate)) / self.sample_rate
        self._samples = (8000 * np.sin(2 * np.pi * self.hertz * time)).astype(np.int16)

    def pull(self, n: int) -> Int16 | None:
        if not len(self._samples):
            return None
        taken, self._samples = self._samples[:n], self._samples[n:]
        self.pulled += len(taken)
        return np.pad(taken, (0, n - len(taken)))


def answer_to(kind: str) -> dict[str, Any]:
    """What a fake session answers to an event of this type."""
    error = ProtocolError("invalid_value", kind, "type").body()
    return {"type": "error", "event_id": random_id("event"), "error": {**error, "event_id": None}}


class FakeSession:
    """Notes what it is given; answers every event with an error that names its type."""

    def __init__(self, unit: FakeUnit, transport: Transport) -> None:
        self._unit = unit
        self.transport = transport
        self.heard: list[Float32] = []
        self.handled: list[str | bytes] = []
        self.settings: list[Any] = []
        self.closed = asyncio.Event()
        self.reason: str | None = None
        transport.send(RealtimeService(CancelScope("fake")).greeting())

    def hear(self, samples: Float32) -> None:
        self.heard.append(samples)

    def handle(self, message: str | bytes) -> None:
        self.handled.append(message)
        kind = json.loads(message)["type"] if isinstance(message, str) else "bytes"
        self.transport.send(answer_to(kind))

    def complain(self, error: ProtocolError) -> None:
        self.transport.send(answer_to(error.message))

    def arrived(self) -> None: ...

    def close(self, reason: str) -> None:
        self.reason = reason
        self._unit.session = None
        self.closed.set()


class FakeUnit:
    def __init__(self, index: int = 0, output: Tone | None = None) -> None:
        self.index = index
        self.output_queue = output or Tone()
        self.session: FakeSession | None = None
        self.sessions: list[FakeSession] = []
        self.stillborn = False
        """True: its sessions fail while they are being opened."""

    def open(
        self, transport: Transport, settings: Sequence[Any] = (), observers: Sequence[Observer] = ()
    ) -> FakeSession:
        self.session = session = FakeSession(self, transport)
        session.settings = list(settings)
        self.sessions.append(session)
        if self.stillborn:
            session.close("internal error")
            transport.close("internal error")
        return session

    @property
    def last(self) -> FakeSession:
        return self.sessions[-1]


class FakePool:
    def __init__(self, units: int = 1) -> None:
        self.units = [FakeUnit(i) for i in range(units)]

    def claim(self) -> FakeUnit:
        for unit in self.units:
            if unit.session is None:
                return unit
        raise PoolFull

    def service_config(self) -> ServiceConfig:
        return ServiceConfig()

    @property
    def free(self) -> int:
        return sum(unit.session is None for unit in self.units)


class FakeSettings:
    ice_servers = ()
    turn = None
    public_ip = ""
    udp_range = None


class ToneTrack(AudioStreamTrack):
    """A microphone that hears a sine wave, 48 kHz mono."""

    def __init__(self, hertz: float = 300.0) -> None:
        super().__init__()
        self._position = 0
        self._hertz = hertz
        self.level = 8000

    async def recv(self) -> Any:
        frame = await super().recv()
        time = (self._position + np.arange(frame.samples)) / frame.sample_rate
        self._position += frame.samples
        frame.planes[0].update(
            (self.level * np.sin(2 * np.pi * self._hertz * time)).astype(np.int16).tobytes()
        )
        return frame


class Client:
    """The browser's end of a call."""

    def __init__(self, *ice_servers: RTCIceServer, relayed: bool = False) -> None:
        policy = RTCIceTransportPolicy.RELAY if relayed else RTCIceTransportPolicy.ALL
        self.connection = RTCPeerConnection(
            RTCConfiguration(iceServers=list(ice_servers), iceTransportPolicy=policy)
        )
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.frames: list[Any] = []
        self.channel: Any = None
        self.location = ""
        self.answer = ""
        self.connected = asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []
        self.connection.on("track", self._on_track)
        self.connection.on("connectionstatechange", self._on_state)

    def add_channel(self, *early: dict[str, Any], label: str = "oai-events") -> Client:
        """Make the data channel; ``early`` events are sent in its open callback."""
        self.channel = channel = self.connection.createDataChannel(label)
        channel.on("message", lambda text: self.events.put_nowait(json.loads(text)))
        channel.on("open", lambda: [channel.send(json.dumps(x)) for x in early])
        return self

    def add_audio(self, track: MediaStreamTrack | None = None, direction: str = "sendrecv") -> Client:
        self.connection.addTransceiver(track or "audio", direction)
        return self

    def prefer(self, mime_type: str) -> Client:
        (transceiver,) = self.connection.getTransceivers()
        codecs = transceiver.sender.getCapabilities("audio").codecs
        transceiver.setCodecPreferences([x for x in codecs if x.mimeType == mime_type])
        return self

    async def offer(self) -> str:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return str(self.connection.localDescription.sdp)

    async def call(
        self, http: ClientSession, change: Callable[[str], str] = str, heed: Callable[[str], str] = str
    ) -> Client:
        """Place the call over HTTP, ``change`` the offer, ``heed`` the answer, wait until it is connected."""
        headers = {"Content-Type": "application/sdp"}
        async with http.post(
            "/v1/realtime/calls", data=change(await self.offer()), headers=headers
        ) as response:
            self.answer = await response.text()
            assert response.status == 201, self.answer
            self.location = response.headers["Location"]
        await self.connection.setRemoteDescription(RTCSessionDescription(heed(self.answer), "answer"))
        async with asyncio.timeout(10):
            await self.connected.wait()
        return self

    async def next_event(self) -> dict[str, Any]:
        async with asyncio.timeout(5):
            return await self.events.get()

    async def next_answer(self) -> str:
        """The type of the event that a fake session answers next."""
        event = await self.next_event()
        assert event["type"] == "error"
        return str(event["error"]["message"])

    async def vanish(self) -> None:
        """Stop answering at the level of UDP, without a word to the other side."""
        for transport in self._ice():
            for protocol in transport._protocols:
                protocol.datagram_received = lambda *_: None
                protocol.transport.sendto = lambda *_: None

    def pause(self) -> Callable[[], None]:
        """Like :meth:`vanish`, until the returned function is called."""
        protocols = [p for transport in self._ice() for p in transport._protocols]
        kept = [(p.transport, p.datagram_received, p.transport.sendto) for p in protocols]
        for protocol in protocols:
            protocol.datagram_received = lambda *_: None
            protocol.transport.sendto = lambda *_: None

        def resume() -> None:
            for protocol, (transport, received, sendto) in zip(protocols, kept, strict=True):
                protocol.datagram_received, transport.sendto = received, sendto

        return resume

    async def close(self) -> None:
        await self.connection.close()
        for task in self._reading:
            task.cancel()

    def _ice(self) -> set[Any]:
        transports = {x.receiver.transport for x in self.connection.getTransceivers()}
        if self.connection.sctp:
            transports.add(self.connection.sctp.transport)
        return {x.transport._connection for x in transports}

    def _on_state(self) -> None:
        if self.connection.connectionState == "connected":
            self.connected.set()

    def _on_track(self, track: MediaStreamTrack) -> None:
        self._reading.append(asyncio.ensure_future(self._read(track)))

    async def _read(self, track: MediaStreamTrack) -> None:
        try:
            while True:
                self.frames.append(await track.recv())
        except MediaStreamError:
            pass
