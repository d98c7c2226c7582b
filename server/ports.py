"""A range for the local UDP ports of calls. aioice binds any free port and has no setting for it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any


def parse_ports(text: str) -> range:
    """``50000-50100``, both ends included.

    :raises ValueError: if it is no such range.
    """
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and 1024 <= int(first) <= int(last) <= 65_535):
        raise ValueError("must look like 50000-50100, from 1024 to 65535")
    return range(int(first), int(last) + 1)


def confine(loop: asyncio.AbstractEventLoop, ports: range) -> None:
    """Have every UDP socket that asks ``loop`` for any port get one of ``ports``, or EADDRINUSE."""
    create: Callable[..., Any] = loop.create_datagram_endpoint
    start = 0

    async def confined(factory: Callable[[], Any], local_addr: Any = None, **options: Any) -> Any:
        nonlocal start
        if local_addr is None or local_addr[1] != 0:
            return await create(factory, local_addr, **options)
        for _ in ports:
            port = ports[start % len(ports)]
            start += 1
            try:
                return await create(factory, (local_addr[0], port), **options)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, f"no UDP port from {ports[0]} to {ports[-1]} is free")

    loop.create_datagram_endpoint = confined  # type: ignore[method-assign, assignment]
