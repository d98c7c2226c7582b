"""One call: a peer connection, its two audio directions, its data channel, and the session of a claimed unit.

Theory of operation. The session lives exactly as long as the call: it is opened with the call and closed, in
one synchronous step, by whatever ends the call first. That is a hang-up by either side, a data channel or
transport that was closed, a peer that has not connected in time, or one that has fallen silent. Taking the
peer connection apart comes after that and may take its time.

A peer that vanishes says nothing, and the consent checks of ICE (RFC 7675) take half a minute to notice. So
the count of received packets is read twice a second; when it stands still, a STUN binding request is sent,
which any live peer must answer (RFC 8445 section 7.3), whatever it has negotiated.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from aioice import stun
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCDtlsTransport,
    RTCPeerConnection,
    RTCRtpTransceiver,
    RTCSctpTransport,
    RTCSessionDescription,
)
from aiortc.exceptions import InternalError, InvalidAccessError, InvalidStateError, OperationError
from aiortc.mediastreams import MediaStreamError

from server.channel import LABEL, EventChannel
from server.inbound import Inbound
from server.jitter import adopt
from server.media import Media, MediaReader, unread
from server.sdp import LOCAL_MAX_MESSAGE_SIZE, Offer, OfferError, finish_answer, read_offer
from server.track import SpeechSource, SpeechTrack, play_to_nobody
from units.messages import Float32
from units.observe import Observer
from units.realtime.errors import ProtocolError
from units.scope import current_scope, entered

logger = logging.getLogger(__name__)

_UNUSABLE = (
    ValueError,
    AssertionError,
    AttributeError,
    LookupError,
    OperationError,
    InternalError,
    InvalidAccessError,
)
"""What aiortc raises over an offer that does not fit together."""

MOST_PIECES = 2048
"""Of messages that have not arrived whole: far more than the longest one has, or wait for a lost packet."""
MOST_STREAMS = 64
"""Of data: a call needs one."""


class Transport(Protocol):
    """What a session sends through. Called on the event loop thread only."""

    plays_audio: bool

    def send(self, event: dict[str, Any]) -> None: ...

    def close(self, reason: str) -> None: ...


class Session(Protocol):
    """An open session of a unit. Called on the event loop thread only."""

    def hear(self, samples: Float32) -> None:
        """Float32 mono at 16 kHz, any length."""

    def handle(self, message: str | bytes, sender: Transport | None = None) -> None:
        """A client event as it was received, from ``sender`` if that has joined. Never raises."""

    def complain(self, error: ProtocolError) -> None:
        """The client did something wrong that is no event, and is to be told."""

    def arrived(self) -> None:
        """The client is there, which was still connecting."""

    def close(self, reason: str) -> None:
        """End the session and release its unit. Idempotent."""

    def join(self, transport: Transport) -> None:
        """One more client, that sees every event and may send any."""

    def leave(self, transport: Transport) -> None:
        """It is gone; the session goes on."""

    @property
    def joined(self) -> int:
        """Clients that have joined and not left."""

    @property
    def unheard(self) -> int:
        """Pieces of sound that the unit has not got to."""


class Unit(Protocol):
    """A claimed unit, as far as a call knows it."""

    index: int

    @property
    def output_queue(self) -> SpeechSource: ...

    @property
    def session(self) -> Session | None:
        """That of whoever has claimed it, also before it is open."""

    def open(
        self, transport: Transport, settings: Sequence[Any] = (), observers: Sequence[Observer] = ()
    ) -> Session:
        """:raises ProtocolError: if one of ``settings``, each as of a ``session.update``, is wrong."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a peer may take, in seconds."""

    answer: float = 6.0
    """From the offer to the answer."""
    connect: float = 15.0
    """From the answer to a connection."""
    silence: float = 5.0
    """Without any packet, before the peer counts as dead."""
    ping: float = 1.0
    """Without any packet, before the peer is asked for one."""
    check: float = 0.5
    """Between two looks at the packet count."""
    reading: float = 5.0
    """Between two readings of how packets travel."""
    handshake: float = 1.0
    """For a handshake under way, when the call is ended during it."""
    take_apart: float = 5.0
    """For closing the peer connection, after the session has been closed."""


class NoPortError(Exception):
    """No local address or UDP port is left for a call."""


class EndedError(Exception):
    """The call was ended before it could be answered."""


class _NoSession:
    """Stands in while a session is being opened, which may fail and end the call at once."""

    def hear(self, samples: Float32) -> None: ...

    def handle(self, message: str | bytes, sender: Transport | None = None) -> None: ...

    def complain(self, error: ProtocolError) -> None: ...

    def arrived(self) -> None: ...

    def close(self, reason: str) -> None: ...

    def join(self, transport: Transport) -> None: ...

    def leave(self, transport: Transport) -> None: ...

    joined = unheard = 0


class Peer:
    """One call. Made and used on the event loop thread.

    :param closed: called once with this peer, when the session has been closed and the unit released.
    :param settings: what the session begins with, each as of a ``session.update``.
    :param observers: see all of the session.
    :param measured: told how packets travel, every ``limits.reading`` seconds and at the end.
    :raises ProtocolError: if one of them is wrong; the unit is released then.
    """

    def __init__(
        self,
        call_id: str,
        unit: Unit,
        configuration: RTCConfiguration,
        closed: Callable[[Peer], None],
        limits: Limits = Limits(),
        settings: Sequence[Any] = (),
        observers: Sequence[Observer] = (),
        measured: Callable[[Media], None] = unread,
    ) -> None:
        self.call_id = call_id
        self._scope = current_scope()
        self._limits = limits
        self._notify = closed
        self._loop = asyncio.get_running_loop()
        self._output = unit.output_queue
        self._channel = EventChannel(self.close)
        self._closed = False
        self._taken_apart: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._inbound: Inbound | None = None
        self._track: SpeechTrack | None = None
        self._settled = asyncio.Event()
        self._packets = 0
        self._alive = 0.0
        self._due = 0.0
        self._measured = measured
        self._next_reading = 0.0
        self._connection = RTCPeerConnection(configuration)
        self._reader = MediaReader(self._connection)
        self._connection.on("connectionstatechange", self._on_state)
        self._connection.on("datachannel", self._on_datachannel)
        self._connection.on("track", self._on_track)
        self._session: Session = _NoSession()
        session = unit.open(self._channel, settings, observers)
        if self._closed:
            session.close("the call has ended")
        else:
            self._session = session

    @property
    def session(self) -> Session:
        """The session of the call."""
        return self._session

    @property
    def closed(self) -> bool:
        """The session has been closed; the connection is closed or about to be."""
        return self._closed

    async def answer(
        self, text: str, public_ip: str | None = None, patience: float = 5.0, caller: str | None = None
    ) -> str:
        """Answer the peer's offer, and give it until ``limits.connect`` to connect. Called once.

        :param patience: seconds to wait for STUN and TURN servers.
        :param caller: IP address that the offer came from, if a relay has to know it.
        :raises OfferError: if the offer cannot be answered.
        :raises NoPortError: if there is no address to answer with.
        :raises TimeoutError: if there is no answer in time.
        :raises EndedError: if the call has ended.
        """
        offer = read_offer(text, caller)
        self._channel.max_message_size = offer.max_message_size
        try:
            async with asyncio.timeout(self._limits.answer):
                await self._negotiate(offer, patience)
        except InvalidStateError as error:
            raise EndedError(str(error)) from error
        if self._closed:
            raise EndedError("ended during negotiation")
        try:
            answer = finish_answer(self._connection.localDescription.sdp, offer, public_ip)
        except ValueError as error:
            raise NoPortError(str(error)) from error
        if self._connection.connectionState != "connected":
            self._timer = self._loop.call_later(self._limits.connect, self.close, "the peer did not connect")
        return answer

    def close(self, reason: str) -> None:
        """End the call now: the session is closed on return, the connection soon after. Idempotent."""
        if not self._closed:
            with entered(self._scope):
                self._close(reason)

    def _close(self, reason: str) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._inbound is not None:
            self._inbound.close()
        for task in self._tasks:
            task.cancel()
        if self._track is not None:
            self._track.stop()
        session, self._session = self._session, _NoSession()
        session.close(reason)
        self._measured(self._reader.read())
        self._taken_apart = self._loop.create_task(self._take_apart(), name=f"close {self.call_id}")
        self._notify(self)

    async def wait_closed(self) -> None:
        """Wait until everything that belonged to a call that has ended is gone."""
        if self._taken_apart is not None:
            await asyncio.wait([self._taken_apart])

    async def _negotiate(self, offer: Offer, patience: float) -> None:
        track = self._track = SpeechTrack(self._output) if offer.hears else None
        if track is not None:
            self._connection.addTrack(track)
        elif offer.direction is not None:
            self._connection.addTransceiver("audio", "recvonly")
        with _blaming_the_offer():
            await self._connection.setRemoteDescription(RTCSessionDescription(offer.sdp, "offer"))
        if self._connection.sctp is not None:
            _tolerate(self._connection.sctp, self._on_message)
            _bound(self._connection.sctp, self._on_flood)
        if track is None:
            self._start(play_to_nobody(self._output))
        else:
            codec = self._connection.getTransceivers()[0]._codecs[0]
            track.raw = codec.mimeType.lower() != "audio/opus"
        for transport in self._transports():
            _limit_gathering(transport, patience)
        with _blaming_the_offer():
            await self._connection.setLocalDescription()

    def _on_track(self, track: MediaStreamTrack) -> None:
        transceiver: RTCRtpTransceiver = self._connection.getTransceivers()[0]
        self._inbound = Inbound(self._session.hear, transceiver._codecs)
        if not adopt(transceiver.receiver, self._inbound.packet):
            self._start(_read(track, self._inbound))

    def _on_datachannel(self, channel: RTCDataChannel) -> None:
        if channel.label != LABEL or self._channel.attached or self._closed:
            logger.info("call %s: data channel %.60r refused", self.call_id, channel.label)
            channel.close()
            message = f"A call has one data channel, named '{LABEL}'; another was closed."
            self._session.complain(ProtocolError("invalid_event", message))
            return
        channel.on("message", self._on_message)
        channel.on("close", self._on_channel_close)
        self._channel.attach(channel)
        self._session.arrived()

    def _on_message(self, message: str | bytes) -> None:
        if not self._closed:
            self._session.handle(message)

    def _on_flood(self) -> None:
        if not self._closed:
            message = (
                f"Invalid event: more than the {LOCAL_MAX_MESSAGE_SIZE} bytes that a message may have, "
                f"or than {MOST_STREAMS} data channels."
            )
            self._session.complain(ProtocolError("invalid_event", message))
            self.close("the client sent a message that is too long")

    def _on_channel_close(self) -> None:
        self.close("the data channel was closed")

    def _on_state(self) -> None:
        state = self._connection.connectionState
        logger.info("call %s is %s", self.call_id, state)
        if state != "connecting":
            self._settled.set()
        if state in ("failed", "closed"):
            self.close(f"the connection {'failed' if state == 'failed' else 'was closed by the peer'}")
        elif state == "connected" and not self._closed:
            if self._timer is not None:
                self._timer.cancel()
            self._alive = self._due = self._loop.time()
            self._check()

    def _check(self) -> None:
        """Look for signs of life, ask for one if there are none, and give the peer up in the end.

        Time during which this very loop stood still is not the peer's silence.
        """
        now = self._loop.time()
        self._alive += now - self._due
        packets = sum(map(_received, self._transports()))
        if packets != self._packets:
            self._packets, self._alive = packets, now
        elif now - self._alive >= self._limits.silence:
            self.close("the peer has fallen silent")
            return
        elif now - self._alive >= self._limits.ping:
            self._start(self._ping())
        if now >= self._next_reading:
            self._next_reading = now + self._limits.reading
            self._measured(self._reader.read())
        self._due = now + self._limits.check
        self._timer = self._loop.call_at(self._due, self._check)

    async def _ping(self) -> None:
        for transport in self._transports():
            if await _answers(transport):
                self._alive = self._loop.time()

    def _transports(self) -> set[RTCDtlsTransport]:
        transports = {x.receiver.transport for x in self._connection.getTransceivers()}
        if self._connection.sctp is not None:
            transports.add(self._connection.sctp.transport)
        return transports

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work, name=f"call {self.call_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_apart(self) -> None:
        """Close the connection. One that is just being made must finish its handshake first: only then can
        the peer be told, which would otherwise go on believing in it for half a minute."""
        try:
            states = self._connection.iceConnectionState, self._connection.connectionState
            if states == ("completed", "connecting"):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._settled.wait(), self._limits.handshake)
            async with asyncio.timeout(self._limits.take_apart):
                await self._connection.close()
        except TimeoutError:
            logger.warning("call %s: the connection did not close in time", self.call_id)
        except (*_UNUSABLE, InvalidStateError, OSError, RuntimeError) as error:
            logger.warning("call %s: the connection did not close: %r", self.call_id, error)
        finally:
            self._connection.remove_all_listeners()
            self._channel.release()
            self._inbound = self._track = None


@contextlib.contextmanager
def _blaming_the_offer() -> Iterator[None]:
    """aiortc checks offers only while it applies them.

    :raises OfferError: in place of whatever it stumbled over.
    """
    try:
        yield
    except _UNUSABLE as error:
        raise OfferError(f"the offer cannot be used: {error}") from error


async def _read(track: MediaStreamTrack, inbound: Inbound) -> None:
    """The way in where the jitter buffer was not replaced: always read, an unread track grows by 1 MB/s."""
    try:
        while True:
            inbound.frame(await track.recv())
    except MediaStreamError:
        pass


def _tolerate(sctp: RTCSctpTransport, handle: Callable[[bytes], None]) -> None:
    """Have text that is not UTF-8 handled as bytes; aiortc would let it end the connection."""
    receive = sctp._data_channel_receive

    async def tolerant(stream_id: int, protocol: int, data: bytes) -> None:
        try:
            await receive(stream_id, protocol, data)
        except UnicodeDecodeError:
            handle(data)

    sctp._data_channel_receive = tolerant


def _bound(sctp: RTCSctpTransport, flooded: Callable[[], None]) -> None:
    """Notice a peer that sends more than there is room for (RFC 9260 section 6.1) of what is no whole message
    yet, or over far more streams than it needs, and heed it no more. aiortc keeps it all, and goes through it
    for each further piece, and through all streams whenever some of it is called off."""
    over = False

    def bounded(receive: Callable[[Any], Awaitable[None]], rarely: bool) -> Callable[[Any], Awaitable[None]]:
        async def receive_bounded(chunk: Any) -> None:
            nonlocal over
            if over:
                return
            if rarely:
                await asyncio.sleep(0)  # sixty of them may be in a packet
            await receive(chunk)
            streams = sctp._inbound_streams
            pieces = sum(len(stream.reassembly) for stream in streams.values())
            over = (
                sctp._advertised_rwnd < 0
                or len(streams) > MOST_STREAMS
                or max(pieces, len(sctp._sack_misordered)) > MOST_PIECES
            )
            if over:
                flooded()

        return receive_bounded

    sctp._receive_data_chunk = bounded(sctp._receive_data_chunk, rarely=False)
    sctp._receive_forward_tsn_chunk = bounded(sctp._receive_forward_tsn_chunk, rarely=True)


def _limit_gathering(transport: RTCDtlsTransport, seconds: float) -> None:
    """Go on without STUN and TURN servers after so long; aioice would wait for 5 s."""
    ice = transport.transport._connection
    ice.get_component_candidates = partial(ice.get_component_candidates, timeout=seconds)


def _received(transport: RTCDtlsTransport) -> int:
    """Packets that came through ``transport``, other than STUN."""
    return int(transport._RTCDtlsTransport__rx_packets)


async def _answers(transport: RTCDtlsTransport) -> bool:
    """Whether the peer answers one STUN binding request within 500 ms."""
    ice = transport.transport._connection
    pair = ice._nominated.get(1)
    if pair is None:
        return False
    try:
        await pair.protocol.request(
            ice.build_request(pair, nominate=False),
            pair.remote_addr,
            integrity_key=ice.remote_password.encode(),
            retransmissions=0,
        )
    except (stun.TransactionError, ConnectionError, InvalidStateError):
        return False
    return True
