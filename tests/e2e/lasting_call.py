"""The caller's side of a call that lasts: says something every ten seconds, and hums all the time.

The server hears no speech in the hum, but it is in the recording: what did not arrive is missing there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import numpy as np
from aiohttp import ClientSession
from aiortc import RTCIceServer

from benchmarks.caller import Microphone
from server.jitter import adopt
from server.track import RATE
from tests.server.fakes import Client
from units.messages import Int16

PERIOD_S = 10
HUM_DBFS = -50.0
_STEP = 960


def phrase() -> Int16:
    """A second of a loud tone, the rest of the ten a quiet one."""
    level = np.full(PERIOD_S * RATE, 10 ** (HUM_DBFS / 20))
    level[:RATE] = 0.3
    samples = level * np.sqrt(2) * np.sin(2 * np.pi * 500 / RATE * np.arange(len(level)))
    return (samples * 32767).astype(np.int16)


class Ear:
    """What comes, and what does not."""

    def __init__(self) -> None:
        self.missing = 0
        """Packets that never came."""
        self._gap = 0.0
        self._at = 0.0
        self._timestamp = 0

    def packet(self, _payload_type: int, _data: bytes, timestamp: int) -> None:
        now = time.monotonic()
        if self._at:
            self._gap = max(self._gap, now - self._at)
            self.missing += (timestamp - self._timestamp - _STEP & 0xFFFF_FFFF) // _STEP
        self._at, self._timestamp = now, timestamp

    def longest_gap(self) -> float:
        """Milliseconds between two packets, since the last time that this was asked."""
        gap = max(self._gap, time.monotonic() - self._at)
        self._gap = 0.0
        return round(gap * 1000, 1)


async def lasting_calls(calls: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """All of them at once: ``name``, ``url`` and ``ice_servers`` of each."""
    return await asyncio.gather(*(lasting_call(**call, seconds=seconds) for call in calls))


async def lasting_call(
    name: str, url: str, ice_servers: list[dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """Talk in turns for so long; the longest gap of every minute, as they pass, to stderr.

    Raises TimeoutError when an answer does not come to its end before the next turn.
    """
    client = Client(*(RTCIceServer(**server) for server in ice_servers))
    microphone, ear, gaps = Microphone(), Ear(), []
    try:
        client.add_audio(microphone).add_channel()
        (transceiver,) = client.connection.getTransceivers()
        assert adopt(transceiver.receiver, ear.packet)
        async with ClientSession(url) as http:
            await client.call(http)
        began = time.monotonic()
        turns = 0
        while time.monotonic() - began < seconds:
            said = microphone.say(phrase())
            async with asyncio.timeout(PERIOD_S):
                while (await client.events.get())["type"] != "output_audio_buffer.stopped":
                    pass
            turns += 1
            await said.done()
            if time.monotonic() - began >= 60 * (len(gaps) + 1):
                gaps.append(ear.longest_gap())
                sys.stderr.write(f"{name}, minute {len(gaps)}: {gaps[-1]:.0f} ms\n")
        (ice,) = client._ice()
        pair = ice._nominated[1]
        return {
            "name": name,
            "call_id": client.location.rpartition("/")[2],
            "pair": [pair.local_candidate.type, pair.remote_candidate.type],
            "turns": turns,
            "missing": ear.missing,
            "gaps_ms": [*gaps, ear.longest_gap()],
        }
    finally:
        await client.close()
