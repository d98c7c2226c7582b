"""Runs the application: the port, the signals, and what the person at the terminal reads."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import signal
import socket
import sys

from aiohttp import web

from server.settings import Settings
from server.startup import STARTUP, Phase, Startup


class CannotListen(Exception):
    """The address cannot be listened on. ``str(error)`` is one sentence that says what to do."""


def say(line: str) -> None:
    """A line for the person at the terminal, if anybody reads it: a call is worth more."""
    try:
        print(line, flush=True)  # noqa: T201 - unlike write, knows that there may be no stdout
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - what is left in the old one would fail again


CLOSE_S = 5.0
"""For the requests that are left to end, once no call is."""


async def run(app: web.Application, settings: Settings) -> None:
    """Serve ``app`` until SIGTERM or SIGINT, then let calls finish; a second one ends the process at once.

    Raises CannotListen, and EngineUnavailable or whatever else kept the models from loading.
    """
    with listen(settings.host, settings.port) as listening:
        stop = on_signals()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            await _serve(app, stop, settings, listening.getsockname()[1])
            await let_finish(app[STARTUP], settings.grace)
        finally:
            await runner.cleanup()


def what_is_kept(settings: Settings) -> list[str]:
    """A line for each kind of record of calls."""
    kept = {"recorded into": settings.record_calls, "written down into": settings.transcripts}
    lines = [f"Calls are {how} {where}." for how, where in kept.items() if where is not None]
    return [*lines, *(["What is said in calls is sent to the webhook."] if settings.webhook else [])]


async def _serve(app: web.Application, stop: asyncio.Event, settings: Settings, port: int) -> None:
    startup = app[STARTUP]
    stopping = asyncio.create_task(stop.wait())
    loading = asyncio.create_task(startup.loaded.wait())
    await asyncio.wait({stopping, loading}, return_when=asyncio.FIRST_COMPLETED)
    loading.cancel()
    if startup.failure is not None:
        raise startup.failure
    if startup.phase is Phase.READY:
        say(f"Duologue is ready: {address(settings.host, port)}")
        for line in what_is_kept(settings):
            say(line)
        if not is_local(settings.host):
            say("Other machines need https in front of it: browsers give pages the microphone only there.")
    await stopping


async def let_finish(startup: Startup, grace_s: float) -> None:
    """Refuse new calls, and serve the others on until they are over or the time is; whatever is left is
    ended with the application."""
    startup.phase = Phase.STOPPING
    pool = startup.pipeline.pool if startup.pipeline is not None else None
    left = 0 if pool is None else pool.wind_down()
    finish = f"{left} {'call gets' if left == 1 else 'calls get'} up to {grace_s:g} s to finish"
    say(f"Stopping{f': {finish}' if left else ''}. Once more to stop at once.")
    if pool is not None:
        await pool.wait_unused(grace_s)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises CannotListen."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(where[:2], family=family, dualstack_ipv6=both)
    except socket.gaierror as error:
        raise CannotListen(f"There is no address {host!r}; choose another with --host.") from error
    except OSError as error:
        raise CannotListen(_why_not(host, port, error)) from error


def address(host: str, port: int) -> str:
    """What to type into a browser on this machine."""
    everywhere_or_here = host in ("", "0.0.0.0", "::") or is_local(host)
    name = "localhost" if everywhere_or_here else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def _why_not(host: str, port: int, error: OSError) -> str:
    reasons = {
        errno.EADDRINUSE: f"Port {port} of {host} is in use; free it, or choose another with --port.",
        errno.EACCES: f"Port {port} needs privileges; choose one above 1023 with --port.",
        errno.EADDRNOTAVAIL: f"{host} is no address of this machine; choose another with --host.",
    }
    return reasons.get(
        error.errno or 0, f"Cannot listen on port {port} of {host}: {error.strerror or error}."
    )


def is_local(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def on_signals() -> asyncio.Event:
    """An event that the first SIGINT or SIGTERM sets; the second ends the process."""
    stop = asyncio.Event()

    def received(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, received, number)
    return stop
