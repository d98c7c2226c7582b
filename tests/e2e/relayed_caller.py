"""The caller's side of tests between networks, to be run inside its namespace.

``python -m tests.e2e.relayed_caller`` reads lines of ``[SCENARIO, ARGUMENTS]`` and prints what came of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from aiohttp import ClientSession
from aioice import stun, turn
from aiortc import RTCIceServer

from server.turn import parse_turn_url
from tests.e2e.lasting_call import lasting_calls
from tests.server.fakes import Client, ToneTrack

TRANSCRIBED = {"type": "realtime", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}


async def call(
    url: str,
    ice_servers: list[dict[str, Any]],
    lasting: float = 0.0,
    heed: Callable[[str], str] = str,
    change: Callable[[str], str] = str,
    relayed: bool = False,
    instructions: str = "",
) -> dict[str, Any]:
    """Say something for a second, hear the answer to its end; ``lasting`` seconds later type something.

    ``took`` is how many seconds it was from the offer to the first event.
    """
    client = Client(*(RTCIceServer(**server) for server in ice_servers), relayed=relayed)
    voice = ToneTrack(500)
    try:
        began = time.monotonic()
        async with ClientSession(url) as http:
            await client.add_audio(voice).add_channel().call(http, change=change, heed=heed)
        seen = await until(client, "session.created")
        took = time.monotonic() - began
        session = TRANSCRIBED | ({"instructions": instructions} if instructions else {})
        client.channel.send(json.dumps({"type": "session.update", "session": session}))
        seen += await until(client, "input_audio_buffer.speech_started")
        voice.level = 0
        seen += await until(client, "output_audio_buffer.stopped")
        sound = np.concatenate([frame.to_ndarray().reshape(-1, 2)[:, 0] for frame in client.frames])
        if lasting:
            await asyncio.sleep(lasting)
            client.channel.send(json.dumps({"type": "input_audio_buffer.clear"}))
            seen += await until(client, "input_audio_buffer.cleared")
        updated = next(event for event in seen if event["type"] == "session.updated")
        return {
            "types": [event["type"] for event in seen],
            "hertz": pitch(sound),
            "pair": pair_kinds(client),
            "took": took,
            "announced": re.findall(r"a=candidate:\S+ 1 udp \S+ (\S+)", client.answer),
            "kept_instructions": updated["session"]["instructions"] == instructions,
        }
    finally:
        await client.close()


async def until(client: Client, kind: str) -> list[dict[str, Any]]:
    """The events up to the first one of ``kind``."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(20):
        while not events or events[-1]["type"] != kind:
            events.append(await client.events.get())
    return events


def pitch(sound: np.ndarray) -> float:
    """Hertz of what is loudest in ``sound``, int16 at 48 kHz."""
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
    return float(np.argmax(spectrum) * 48_000 / len(sound))


def pair_kinds(client: Client) -> list[str]:
    """Kinds of the local and of the remote candidate in use."""
    (ice,) = client._ice()
    pair = ice._nominated[1]
    return [pair.local_candidate.type, pair.remote_candidate.type]


async def calls(url: str, urls: dict[str, str]) -> dict[str, Any]:
    """A call over each of the TURN servers that the page is told of, at once."""
    async with ClientSession(url) as http, http.get("/client-config.json") as response:
        told = {server["urls"][0]: server for server in (await response.json())["ice_servers"]}
    results = await asyncio.gather(*(call(url, [told[turn_url]]) for turn_url in urls.values()))
    return dict(zip(urls, results, strict=True))


async def call_to_relay(url: str, ice_servers: list[dict[str, Any]]) -> dict[str, Any]:
    """A call to a server of which nothing is known but its relay, as if it were behind NAT."""

    def only_relays(sdp: str) -> str:
        lines = sdp.splitlines(keepends=True)
        return "".join(x for x in lines if not x.startswith("a=candidate") or " typ relay " in x)

    return await call(url, ice_servers, heed=only_relays)


async def hidden_call(url: str) -> dict[str, Any]:
    """A call by someone who keeps their addresses to themselves, as browsers do."""

    def hide(sdp: str) -> str:
        return "".join(x for x in sdp.splitlines(keepends=True) if not x.startswith("a=candidate"))

    return await call(url, [], change=hide)


async def plain_calls(urls: dict[str, str]) -> dict[str, Any]:
    """A call to each of the servers, at once, by callers that know of no TURN server."""
    results = await asyncio.gather(*(call(url, []) for url in urls.values()))
    return dict(zip(urls, results, strict=True))


class _Relay(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def error_received(self, exc: Exception) -> None:
        self.failed.set_result(exc)


async def allocate(server: dict[str, Any]) -> tuple[Any, _Relay]:
    host, port, kind = parse_turn_url(server["urls"])
    return await turn.create_turn_endpoint(
        _Relay,
        (host, port),
        server["username"],
        server["credential"],
        ssl=kind == "tls" or None,
        transport="udp" if kind == "udp" else "tcp",
    )


async def logins(servers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What each login comes to: the code of an error, or 0."""

    async def attempt(server: dict[str, Any]) -> int:
        try:
            transport, _ = await allocate(server)
        except stun.TransactionFailed as error:
            return int(error.response.error_code)
        transport.close()
        return 0

    return {name: await attempt(server) for name, server in servers.items()}


async def peers(server: dict[str, Any], addresses: list[str]) -> dict[str, Any]:
    """What sending to each address comes to: the code of an error, or 0 after a second without one."""
    transport, relay = await allocate(server)
    results = {}
    for address in addresses:
        relay.failed = asyncio.get_running_loop().create_future()
        transport.sendto(b"hello", (address, 5000))
        await asyncio.wait([relay.failed], timeout=1.0)
        error = relay.failed.result() if relay.failed.done() else None
        results[address] = error.response.error_code if isinstance(error, stun.TransactionFailed) else 0
    transport.close()
    return results


async def quota(server: dict[str, Any], attempts: int) -> list[int]:
    """Codes of so many allocations with one login at once."""
    async with contextlib.AsyncExitStack() as stack:
        codes = []
        for _ in range(attempts):
            try:
                transport, _ = await allocate(server)
                stack.callback(transport.close)
                codes.append(0)
            except stun.TransactionFailed as error:
                codes.append(int(error.response.error_code))
        return codes


SCENARIOS = {
    "call": call,
    "calls": calls,
    "call_to_relay": call_to_relay,
    "hidden_call": hidden_call,
    "lasting_calls": lasting_calls,
    "plain_calls": plain_calls,
    "logins": logins,
    "peers": peers,
    "quota": quota,
}

if __name__ == "__main__":
    for line in sys.stdin:
        scenario, arguments = json.loads(line)
        try:
            answer = {"result": asyncio.run(SCENARIOS[scenario](**arguments))}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
