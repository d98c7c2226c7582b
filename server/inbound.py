"""The caller's voice: encoded packets (or a track's frames) in, 16 kHz mono float32 out, on a true clock.

The voice activity stage counts samples to tell the time. So lost packets become silence of the same length,
found from the RTP timestamps; and when packets stop arriving altogether (a replaced track, a frozen tab,
discontinuous transmission) silence is fed by the wall clock, until any turn must have ended. Everything runs
on the event loop thread, and nothing runs while no packets come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from fractions import Fraction

import av
import numpy as np
from aiortc.codecs import get_decoder
from aiortc.jitterbuffer import JitterFrame
from aiortc.rtcrtpparameters import RTCRtpCodecParameters

from units.messages import EAR_RATE, Float32

logger = logging.getLogger(__name__)

MAX_GAP = 2.0
"""Longest silence put in for lost packets, in seconds."""
STARVED = 0.15
"""Without packets for this long, silence is fed by the wall clock."""
MAX_STARVED = 12.0
"""How long silence is fed: longer than the longest wait for the end of a turn (8 s at low eagerness)."""
_CHECK = 0.1

Hear = Callable[[Float32], None]
Decode = Callable[[bytes, int], Sequence[av.AudioFrame]]


class Timeline:
    """Where the next sound belongs on the sender's clock, in units of its RTP timestamp."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._next: int | None = None

    def place(self, timestamp: int, length: int) -> int | None:
        """Units missing before a frame of ``length`` units at ``timestamp``; None if its time has passed.

        A step of more than a minute, or back by more than a second, starts a new timeline.
        """
        gap = 0 if self._next is None else _signed(timestamp - self._next)
        if -self.rate < gap < 0:
            return None
        self._next = timestamp + length
        if not 0 <= gap < 60 * self.rate:
            return 0
        return min(gap, int(MAX_GAP * self.rate))

    def restart(self) -> None:
        """Take the next frame as it comes."""
        self._next = None


class Inbound:
    """The inbound audio of one call.

    :param hear: is given float32 mono at 16 kHz, some 20 ms at a time, on the event loop thread.
    :param codecs: what was negotiated.
    """

    def __init__(self, hear: Hear, codecs: Sequence[RTCRtpCodecParameters] = ()) -> None:
        self._hear = hear
        self._codecs = {x.payloadType: x for x in codecs}
        self._decode: Decode | None = None
        self._payload_type: int | None = None
        self._timeline = Timeline(48_000)
        self._resampler: av.AudioResampler | None = av.AudioResampler(
            format="flt", layout="mono", rate=EAR_RATE
        )
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._arrived = 0.0
        self._heard_until = 0.0
        self._starved = False
        self._closed = False

    def packet(self, payload_type: int, data: bytes, timestamp: int) -> None:
        """One encoded frame, in order. What cannot be decoded counts as lost."""
        codec = self._codecs.get(payload_type)
        if codec is None or self._closed:
            return
        if payload_type != self._payload_type or self._decode is None:
            self._payload_type = payload_type
            self._decode = _decoder(codec)
            self._timeline = Timeline(codec.clockRate)
        try:
            frames = self._decode(data, timestamp)
        except av.FFmpegError as error:
            logger.debug("undecodable %s packet: %s", codec.mimeType, error)
            return
        for frame in frames:
            length = frame.samples * codec.clockRate // frame.sample_rate
            self._frame(frame, timestamp, length)

    def frame(self, frame: av.AudioFrame) -> None:
        """One frame of a track that aiortc has decoded; its pts counts samples or units of its time base."""
        rate = round(1 / Fraction(frame.time_base.numerator, frame.time_base.denominator))
        if rate != self._timeline.rate:
            self._timeline = Timeline(rate)
        if not self._closed:
            self._frame(frame, frame.pts, frame.samples * rate // frame.sample_rate)

    def close(self) -> None:
        """Hear no more, and let go of the native threads of codec and resampler. Idempotent."""
        self._closed = True
        self._decode = self._resampler = None
        self._hear = _deaf
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _frame(self, frame: av.AudioFrame, timestamp: int, length: int) -> None:
        if self._closed:
            return
        now = self._loop.time()
        if self._starved:
            self._starved = False
            self._timeline.restart()
            self._silence(now - self._heard_until - length / self._timeline.rate)
        gap = self._timeline.place(timestamp, length)
        self._arrived = self._heard_until = now
        if self._watch is None:
            self._watch = self._loop.call_later(_CHECK, self._check)
        if gap is None:
            return
        self._silence(gap / self._timeline.rate)
        if self._resampler is None:
            return
        frame.pts = None
        for resampled in self._resampler.resample(frame):
            self._hear(np.frombuffer(resampled.planes[0], np.float32, resampled.samples).copy())

    def _silence(self, seconds: float) -> None:
        samples = round(min(seconds, MAX_GAP) * EAR_RATE)
        if samples > 0:
            self._hear(np.zeros(samples, dtype=np.float32))

    def _check(self) -> None:
        """Feed silence for the time without packets; stop looking when even that is of no more use."""
        self._watch = None
        now = self._loop.time()
        if now - self._arrived > STARVED:
            self._starved = True
            self._silence(now - self._heard_until)
            self._heard_until = now
        if now - self._arrived < MAX_STARVED:
            self._watch = self._loop.call_later(_CHECK, self._check)


def _deaf(_samples: Float32) -> None: ...


def _decoder(codec: RTCRtpCodecParameters) -> Decode:
    if codec.mimeType.lower() == "audio/opus":
        return _opus_decoder()
    decoder = get_decoder(codec)

    def decode(data: bytes, timestamp: int) -> Sequence[av.AudioFrame]:
        frames: Sequence[av.AudioFrame] = decoder.decode(JitterFrame(data=data, timestamp=timestamp))
        return frames

    return decode


def _opus_decoder() -> Decode:
    """Opus straight to mono: two thirds of the time that aiortc's stereo decoder takes."""
    context = av.CodecContext.create("libopus", "r")
    context.format, context.layout, context.sample_rate = "s16", "mono", 48_000
    context.thread_count = 1

    def decode(data: bytes, _timestamp: int) -> Sequence[av.AudioFrame]:
        frames: Sequence[av.AudioFrame] = context.decode(av.Packet(data))
        return frames

    return decode


def _signed(delta: int) -> int:
    """A difference of 32 bit timestamps, from -2**31 to 2**31 - 1."""
    return ((delta + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
