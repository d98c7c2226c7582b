"""A server with scripted engines that keeps records, and callers whose sound is known."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import av
import numpy as np
from aiohttp import ClientWebSocketResponse, WSMsgType
from aiohttp.test_utils import TestClient, TestServer
from aiortc import MediaStreamTrack

from server.app import build_app
from server.jitter import adopt
from server.settings import Settings
from server.startup import STARTUP
from tests.server.fakes import Client, ToneTrack
from units import EngineSettings, PipelineConfig, build_pipeline
from units.realtime.sound import decoded, encoded

SCRIPTED = EngineSettings("scripted")
CONFIG = PipelineConfig(
    num_pipelines=2, vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED
)
CALLER_HZ = 700.0
ASSISTANT_HZ = 300.0
"""What scripted engines speak in."""

LOUD_PACKET = 60
"""Bytes; those of silence have half of that."""

Json = dict[str, Any]
Http = TestClient[Any, Any]


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Http]:
    """A server that has stopped when the block is left, so that its records are whole."""
    kept = {"record_calls": folder, "transcripts": folder} | settings
    async with TestClient(TestServer(build_app(Settings(**kept), build_pipeline(CONFIG)))) as http:
        await http.app[STARTUP].loaded.wait()
        yield http


def records(folder: Path) -> list[Json]:
    """Of the one call that there was."""
    (path,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def sound_file(folder: Path) -> Path:
    """Of the one call that there was."""
    (path,) = folder.glob("*.ogg")
    return path


def open_files(folder: Path) -> list[str]:
    """Those in the folder that this process holds, deleted ones too."""
    links = (Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
    names = [str(link.readlink()) for link in links if link.is_symlink()]
    return [name for name in names if name.startswith(str(folder))]


def at(record: Json) -> float:
    """When it was made, as a Unix time."""
    return datetime.fromisoformat(record["time"]).timestamp()


class Ear(Client):
    """A caller who notes when loud packets come and go, without the delays of its own sound chain."""

    def __init__(self) -> None:
        super().__init__()
        self.loud: list[float] = []
        """When each loud packet arrived, Unix time."""
        self.spoken: list[float] = []
        """When each loud packet left."""
        self.microphone = ToneTrack(CALLER_HZ)
        self.microphone.level = 0
        self._decoder = av.CodecContext.create("libopus", "r")

    async def dial(self, http: Any) -> Ear:
        """Call, and wait for the greeting."""
        await self.add_audio(self.microphone).add_channel().call(http)
        transport = self.connection.getSenders()[0].transport
        send = transport._send_rtp

        async def noted(data: bytes) -> None:
            if not 64 <= data[1] & 0x7F < 96 and len(data) > LOUD_PACKET:
                self.spoken.append(time.time())
            await send(data)

        transport._send_rtp = noted
        await self.event("session.created")
        return self

    def _on_track(self, track: MediaStreamTrack) -> None:
        (transceiver,) = self.connection.getTransceivers()
        assert adopt(transceiver.receiver, self._packet)

    def _packet(self, _payload_type: int, data: bytes, _timestamp: int) -> None:
        for frame in self._decoder.decode(av.Packet(data)):
            if np.abs(frame.to_ndarray()).max() > 0.05 * 32768:
                self.loud.append(time.time())

    async def say(self, seconds: float) -> tuple[float, float]:
        """A tone; when its first and last sample were spoken."""
        self.spoken.clear()
        self.microphone.level = 8000
        await until(lambda: self.spoken)
        await asyncio.sleep(seconds)
        self.microphone.level = 0
        await asyncio.sleep(0.2)
        return self.spoken[0] - 0.02, self.spoken[-1]

    def do(self, **event: Any) -> None:
        self.channel.send(json.dumps(event))

    async def event(self, kind: str) -> Json:
        async with asyncio.timeout(15):
            while (event := await self.events.get())["type"] != kind:
                pass
        return event


class Socket:
    """A WebSocket client with a microphone that never stops, and an assumed loudspeaker."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._events: asyncio.Queue[Json] = asyncio.Queue()
        self._level = 0
        self._spoken: list[float] = []
        self.played: list[tuple[float, float, str]] = []
        """Of each delta: when it came, how many seconds it lasts, and its item."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._speak())]

    async def _listen(self) -> None:
        async for message in self._socket:
            assert message.type is WSMsgType.TEXT
            event = json.loads(message.data)
            if event["type"] == "response.output_audio.delta":
                seconds = len(decoded(event["delta"], "audio/pcm")) / 24_000
                self.played.append((time.time(), seconds, event["item_id"]))
            self._events.put_nowait(event)

    async def _speak(self) -> None:
        n = 0
        start = time.monotonic()
        while True:
            wave = self._level * np.sin(2 * np.pi * CALLER_HZ * (n * 480 + np.arange(480)) / 24_000)
            n += 1
            await asyncio.sleep(max(0.0, start + n * 0.02 - time.monotonic()))
            audio = encoded(wave.astype(np.int16), "audio/pcm")
            if wave.any():
                self._spoken.append(time.time())
            await self.do(type="input_audio_buffer.append", audio=audio)

    async def say(self, seconds: float) -> tuple[float, float]:
        """A tone; when its first and last sample were spoken."""
        self._spoken.clear()
        self._level = 8000
        await asyncio.sleep(seconds)
        self._level = 0
        await asyncio.sleep(0.05)
        return self._spoken[0] - 0.02, self._spoken[-1]

    async def do(self, **event: Any) -> None:
        await self._socket.send_json(event)

    async def event(self, kind: str) -> Json:
        async with asyncio.timeout(15):
            while (event := await self._events.get())["type"] != kind:
                pass
        return event

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._socket.close()


class Stalls:
    """How late this process was at worst, since others use the machine too, seconds."""

    def __init__(self) -> None:
        self._worst = 0.0
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self._worst = max(self._worst, time.monotonic() - before - 0.01)

    def near(self, seconds: float = 0.05) -> float:
        """How far from each other two times may be that are the same."""
        self._task.cancel()
        return seconds + 2 * self._worst


def typed(text: str) -> Json:
    """The event that puts a message into the conversation."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"type": "conversation.item.create", "item": item}


async def until(fact: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not fact():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
