"""The outbound track: 20 ms of speech at a time, encoded here, paced by a monotonic clock.

Opus is encoded inline (mono, 24 kHz, CELT) and handed to aiortc as a packet: less than half the work of its
own 48 kHz stereo encoder, which also measures a level in pure Python. With nothing to say one cached packet
of silence is sent again and again. Timestamps advance by exactly 960 at 48 kHz, whatever happens.
"""

from __future__ import annotations

import asyncio
import functools
from fractions import Fraction
from typing import Protocol

import av
import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from units.messages import Int16

RATE = 24_000
"""What is encoded, in Hz."""
FRAME = 480
"""Samples of one frame, at :data:`RATE`."""
PERIOD = 0.020
BIT_RATE = 40_000

_STEP = 960
_TIME_BASE = Fraction(1, 48_000)
_RAW_TIME_BASE = Fraction(1, RATE)
_CATCH_UP = 0.010
"""Least distance between two frames while late ones are sent."""
_TOO_LATE = 1.0
"""After a longer delay the clock skips ahead and nothing is caught up."""
_FADE_FRAMES = 5
"""Frames of real silence after speech, so that encoder and decoder come to rest together."""
_RAMP = 120
"""Samples over which a wave that was cut off returns to zero: 5 ms."""


class SpeechSource(Protocol):
    """The output queue of a unit, as far as the track knows it."""

    @property
    def sample_rate(self) -> int:
        """Hz of what :meth:`pull` returns."""

    def pull(self, n: int) -> Int16 | None:
        """The next ``n`` samples, zero-padded at the end of a speech; None with nothing to say."""


class Pace:
    """When the next frame is due, on a clock that never goes back. Pure: time is an argument."""

    def __init__(self, period: float = PERIOD) -> None:
        self._period = period
        self._due: float | None = None
        self._sent = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds to wait at ``now`` for the next frame, which then counts as sent.

        Frames missed by a late wake-up follow at twice the pace; after more than a second the clock
        starts anew.
        """
        if self._due is None or now - self._due > _TOO_LATE:
            self._due = now
        start = max(now, self._due, self._sent + _CATCH_UP)
        self._sent = start
        self._due += self._period
        return start - now


class OpusEncoder:
    """One stream of Opus: int16 mono 24 kHz frames of 20 ms in, packets out."""

    def __init__(self) -> None:
        self._codec = av.CodecContext.create("libopus", "w")
        self._codec.sample_rate = RATE
        self._codec.layout = "mono"
        self._codec.format = "s16"
        self._codec.bit_rate = BIT_RATE
        self._codec.thread_count = 1
        self._codec.time_base = _RAW_TIME_BASE
        self._codec.options = {"application": "lowdelay", "frame_duration": "20", "compression_level": "5"}
        self._frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME)
        self._frame.sample_rate = RATE
        self._pts = 0

    def encode(self, samples: Int16) -> av.Packet:
        """``samples``: int16 [480]."""
        self._frame.planes[0].update(samples.tobytes())
        self._frame.pts = self._pts
        self._pts += FRAME
        (packet,) = self._codec.encode(self._frame)
        return packet


@functools.cache
def silent_frame() -> bytes:
    """20 ms of silence as Opus, from an encoder that has come to rest."""
    encoder = OpusEncoder()
    silence = np.zeros(FRAME, dtype=np.int16)
    for _ in range(10):
        packet = encoder.encode(silence)
    return bytes(packet)


class Speech:
    """Frames of exactly 20 ms at :data:`RATE`, whatever the rate of the source."""

    def __init__(self, source: SpeechSource) -> None:
        self._source = source
        self._rate = RATE
        self._resampler: av.AudioResampler | None = None
        self._fade = 0
        self._last = 0

    def next(self) -> Int16 | None:
        """The next frame, int16 [480]; None once speech and its fading away are over."""
        while True:
            pulled = self._source.pull(self._source.sample_rate // 50)
            if pulled is not None:
                self._fade = _FADE_FRAMES
            elif self._fade:
                self._fade -= 1
                pulled = self._fading()
            else:
                return None
            self._last = int(pulled[-1])
            frame = self._converted(pulled)
            if frame is not None:
                return frame

    def _fading(self) -> Int16:
        """Silence, reached within 5 ms from wherever the wave was cut off."""
        silence = np.zeros(self._source.sample_rate // 50, dtype=np.int16)
        if self._last:
            silence[:_RAMP] = np.linspace(self._last, 0, _RAMP).astype(np.int16)
        return silence

    def _converted(self, samples: Int16) -> Int16 | None:
        rate = self._source.sample_rate
        if rate != self._rate:
            self._rate = rate
            self._resampler = _resampler(rate)
        if self._resampler is None:
            return samples
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = rate
        converted = self._resampler.resample(frame)
        return converted[0].to_ndarray()[0] if converted else None


class SpeechTrack(MediaStreamTrack):  # type: ignore[misc]
    """What the peer hears."""

    kind = "audio"

    def __init__(self, source: SpeechSource) -> None:
        super().__init__()
        self._speech: Speech | None = Speech(source)
        self._pace = Pace()
        self._count = -1
        self._loop = asyncio.get_running_loop()
        self._encoder: OpusEncoder | None = OpusEncoder()
        self._silence = av.Packet(silent_frame())
        self._silence.time_base = _TIME_BASE
        self.raw = False
        """True: hand out frames for aiortc to encode, because another codec than Opus was negotiated."""

    async def recv(self) -> av.Packet | av.AudioFrame:
        """The next 20 ms, when they are due.

        :raises MediaStreamError: once the track has been stopped.
        """
        wait = self._pace.wait(self._loop.time())
        if wait > 0:
            await asyncio.sleep(wait)
        if self.readyState != "live" or self._speech is None:
            raise MediaStreamError
        self._count += 1
        samples = self._speech.next()
        return self._raw(samples) if self.raw else self._packet(samples)

    def stop(self) -> None:
        """Hand out no more, and let go of the native threads of encoder and resampler. Idempotent."""
        super().stop()
        self._speech = self._encoder = None

    def _packet(self, samples: Int16 | None) -> av.Packet:
        packet = self._silence
        if samples is not None and self._encoder is not None:
            packet = self._encoder.encode(samples)
            packet.time_base = _TIME_BASE
        packet.pts = packet.dts = self._count * _STEP
        return packet

    def _raw(self, samples: Int16 | None) -> av.AudioFrame:
        if samples is None:
            samples = np.zeros(FRAME, dtype=np.int16)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = RATE
        frame.time_base = _RAW_TIME_BASE
        frame.pts = self._count * FRAME
        return frame


async def play_to_nobody(source: SpeechSource) -> None:
    """Let speech pass in real time for a peer that wants none, so that it ends when it would have ended."""
    while True:
        await asyncio.sleep(5 * PERIOD)
        for _ in range(5):
            source.pull(source.sample_rate // 50)


def _resampler(rate: int) -> av.AudioResampler | None:
    if rate == RATE:
        return None
    return av.AudioResampler(format="s16", layout="mono", rate=RATE, frame_size=FRAME)
