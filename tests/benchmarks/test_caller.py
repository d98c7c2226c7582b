"""What a caller knows about when it spoke and when it heard. Without a server."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from benchmarks.caller import Ear, Microphone, at_rate
from server.track import FRAME, PERIOD, RATE, OpusEncoder, silent_frame

LOUD = (0.5 * 32767 * np.sin(2 * np.pi * 300 * np.arange(FRAME) / RATE)).astype(np.int16)


async def test_the_microphone_keeps_time() -> None:
    microphone = Microphone()
    await microphone.recv()
    began = time.monotonic()
    packets = [await microphone.recv() for _ in range(10)]
    assert time.monotonic() - began == pytest.approx(10 * PERIOD, abs=0.05)
    assert [packet.pts for packet in packets] == [960 * n for n in range(1, 11)]


async def test_what_is_said_is_timed_by_the_packet_that_it_leaves_in() -> None:
    microphone = Microphone()
    said = microphone.say(np.tile(LOUD, 5))
    before = time.monotonic()
    for _ in range(5):
        await microphone.recv()
    await asyncio.wait_for(said.done(), 1)
    assert said.ended - said.began == pytest.approx(5 * PERIOD, abs=0.05)
    assert said.ended == pytest.approx(time.monotonic(), abs=0.05)
    assert before - PERIOD <= said.began < said.at(0.05) < said.ended


async def test_an_utterance_that_is_hushed_leaves_no_further() -> None:
    microphone = Microphone()
    said = microphone.say(np.tile(LOUD, 5))
    await microphone.recv()
    microphone.hush()
    await microphone.recv()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(said.done(), 0.01)


async def test_the_ear_tells_speech_from_the_silence_around_it() -> None:
    ear, encoder = Ear(), OpusEncoder()
    ear.packet(111, silent_frame(), 0)
    before = time.monotonic()
    assert ear.first_loud(0.0) is None
    for _ in range(5):
        ear.packet(111, bytes(encoder.encode(LOUD)), 0)
    after = time.monotonic()
    for _ in range(5):
        ear.packet(111, bytes(encoder.encode(np.zeros(FRAME, np.int16))), 0)
    assert before <= (ear.first_loud(0.0) or 0) <= (ear.last_loud() or 0)
    assert (ear.last_loud() or 0) <= after + 0.02
    heard = ear.heard()
    assert len(heard.samples) == 960 * len(heard.times)
    assert len(heard.since(after).times) == 5


def test_a_second_stays_a_second_at_another_rate() -> None:
    second = np.zeros(16_000, np.float32)
    assert abs(len(at_rate(second, 16_000, RATE)) - RATE) <= 2


def test_floats_are_scaled_to_sixteen_bits() -> None:
    assert at_rate(np.array([-1.0, 0.5, 2.0], np.float32), RATE, RATE).tolist() == [-32767, 16383, 32767]
