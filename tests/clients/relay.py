"""Stands between a client and the server, and can cut them off from each other as a network does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Relay:
    """Passes bytes on, both ways; ``url`` stands for that of the server."""

    def __init__(self, base: str) -> None:
        self._server = urlsplit(base)
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.connections = 0

    def cut(self) -> None:
        """Break all connections, without a word to either side. New ones are passed on."""
        for writer in self._writers:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client has connected."""
        self.connections += 1
        there = await asyncio.open_connection(self._server.hostname, self._server.port)
        self._writers |= {writer, there[1]}
        await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
        self._writers -= {writer, there[1]}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


@asynccontextmanager
async def relayed(base: str) -> AsyncIterator[Relay]:
    """A relay to the server at ``base``."""
    relay = Relay(base)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    relay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
