from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction

import av
import numpy as np
import pytest
from aiortc.rtcrtpparameters import RTCRtpCodecParameters

from server.inbound import MAX_STARVED, Inbound, Timeline
from server.track import FRAME, OpusEncoder
from units.messages import Float32

OPUS = RTCRtpCodecParameters("audio/opus", 48_000, 2, 111)
PCMU = RTCRtpCodecParameters("audio/PCMU", 8_000, 1, 0)


class HandClock:
    """An event loop's clock and its one timer, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> HandClock:
        self.timers.append((self.now + delay, callback))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and min(x[0] for x in self.timers) <= end:
            timer = min(self.timers, key=lambda x: x[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = end


def tone(packets: int) -> list[bytes]:
    encoder = OpusEncoder()
    time = np.arange(packets * FRAME) / 24_000
    samples = (8000 * np.sin(2 * np.pi * 300 * time)).astype(np.int16)
    return [bytes(encoder.encode(x)) for x in samples.reshape(packets, FRAME)]


class Ears:
    """An inbound direction with a clock moved by hand, and what it has heard."""

    def __init__(self) -> None:
        self.heard: list[Float32] = []
        self.inbound = Inbound(self.heard.append, [OPUS, PCMU])
        self.clock = HandClock()
        self.inbound._loop = self.clock

    @property
    def ms(self) -> float:
        return sum(map(len, self.heard)) / 16

    def play(self, packets: list[bytes], first: int = 0, lost: frozenset[int] = frozenset()) -> None:
        for i, packet in enumerate(packets, first):
            self.clock.advance(0.02)
            if i not in lost:
                self.inbound.packet(111, packet, (i * 960) & 0xFFFF_FFFF)


@pytest.fixture
async def ears() -> Ears:
    return Ears()


async def test_speech_comes_as_float32_at_16_khz_in_its_own_length(ears: Ears) -> None:
    ears.play(tone(50))
    samples = np.concatenate(ears.heard)
    assert samples.dtype == np.float32
    assert abs(ears.ms - 1000) < 2
    assert abs(np.abs(samples[4000:]).max() - 8000 / 32768) < 0.02
    spectrum = np.abs(np.fft.rfft(samples))
    assert abs(np.argmax(spectrum) * 16_000 / len(samples) - 300) < 2


async def test_conversion_leaves_no_ticks_at_the_seams(ears: Ears) -> None:
    ears.play(tone(50))
    samples = np.concatenate(ears.heard)[4000:]
    assert np.abs(np.diff(samples)).max() < 1.1 * 0.245 * 2 * np.pi * 300 / 16_000


async def test_lost_packets_become_silence_of_the_same_length(ears: Ears) -> None:
    ears.play(tone(100), lost=frozenset({20, 50, 51, 52}))
    assert abs(ears.ms - 2000) < 2


async def test_timestamps_may_wrap(ears: Ears) -> None:
    packets = tone(20)
    ears.play(packets, first=(1 << 32) // 960 - 10)
    assert abs(ears.ms - 400) < 2


async def test_a_packet_that_cannot_be_decoded_counts_as_lost(ears: Ears) -> None:
    packets = tone(20)
    packets[7] = b"\xff"
    ears.play(packets)
    assert abs(ears.ms - 400) < 2


async def test_silence_is_heard_when_packets_stop(ears: Ears) -> None:
    ears.play(tone(50))
    ears.clock.advance(3)
    assert abs(ears.ms - 4000) < 120
    assert np.abs(np.concatenate(ears.heard)[17_000:]).max() == 0


async def test_nothing_runs_once_the_silence_has_lasted_long_enough(ears: Ears) -> None:
    ears.play(tone(5))
    ears.clock.advance(MAX_STARVED + 1)
    assert ears.clock.timers == []
    heard = ears.ms
    ears.clock.advance(3600)
    assert ears.ms == heard


async def test_nothing_runs_before_the_first_packet(ears: Ears) -> None:
    assert ears.clock.timers == []


@pytest.mark.parametrize("skipped", [0, 100])
async def test_time_is_true_after_a_pause_whatever_the_sender_made_of_its_timestamps(
    ears: Ears, skipped: int
) -> None:
    packets = tone(60)
    ears.play(packets[:30])
    ears.clock.advance(2)
    ears.play(packets[30:], first=30 + skipped)
    assert abs(ears.ms - 3200) < 25


async def test_one_packet_in_400_ms_keeps_time(ears: Ears) -> None:
    packets = tone(30)
    ears.play(packets[:10])
    for i in range(5):
        ears.clock.advance(0.38)
        ears.play([packets[10 + i]], first=10 + 20 * (i + 1))
    assert abs(ears.ms - 2200) < 45


async def test_nothing_is_heard_after_close(ears: Ears) -> None:
    ears.play(tone(5))
    ears.inbound.close()
    heard = ears.ms
    ears.play(tone(5), first=5)
    ears.clock.advance(5)
    assert ears.ms == heard


async def test_g711_is_heard(ears: Ears) -> None:
    for i in range(50):
        ears.inbound.packet(0, bytes([0x20]) * 160, i * 160)
    assert abs(ears.ms - 1000) < 3


async def test_frames_of_a_track_are_heard_as_packets_are(ears: Ears) -> None:
    for i in (0, 1, 2, 5, 6):
        frame = av.AudioFrame(format="s16", layout="stereo", samples=960)
        frame.sample_rate, frame.pts, frame.time_base = 48_000, i * 960, Fraction(1, 48_000)
        ears.inbound.frame(frame)
    assert abs(ears.ms - 140) < 2


@pytest.mark.parametrize(
    ("timestamps", "gaps"),
    [
        ([0, 960, 1920], [0, 0, 0]),
        ([0, 1920], [0, 960]),
        ([0, 960, 0, 1920], [0, 0, None, 0]),
        ([0, 48_000 * 10], [0, 96_000]),
        ([0, 48_000 * 100, 48_000 * 100 + 960], [0, 0, 0]),
        ([48_000 * 10, 0, 960], [0, 0, 0]),
    ],
)
def test_gaps_are_found_from_timestamps(timestamps: list[int], gaps: list[int | None]) -> None:
    timeline = Timeline(48_000)
    assert [timeline.place(x, 960) for x in timestamps] == gaps


async def test_a_closed_ear_lets_go_of_its_native_threads_at_once(ears: Ears) -> None:
    packets = tone(3)
    before = len(os.listdir("/proc/self/task"))
    ears.play(packets)
    assert len(os.listdir("/proc/self/task")) > before
    ears.inbound.close()
    assert len(os.listdir("/proc/self/task")) <= before
    heard = len(ears.heard)
    ears.play(packets, first=3)
    assert len(ears.heard) == heard
