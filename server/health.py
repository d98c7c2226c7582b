"""Is it alive, is it ready, what is every unit doing."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from server.doors import FRESH
from server.startup import STARTUP, Phase
from units import UnitStatus


def setup_health(app: web.Application) -> None:
    """Add ``/healthz``, ``/readyz`` and ``/v1/pool``."""
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/v1/pool", pool)


async def healthz(request: web.Request) -> web.Response:
    """200 as long as the event loop turns."""
    return web.json_response({"status": "ok"}, headers=FRESH)


async def readyz(request: web.Request) -> web.Response:
    """200 once the chain is warm, with the number of units and of free ones; else 503 saying why."""
    startup = request.app[STARTUP]
    body: dict[str, Any] = {"status": startup.phase.value}
    if startup.phase is Phase.LOADING:
        body["stage"] = startup.stage
    if startup.phase is not Phase.READY or startup.pipeline is None:
        return web.json_response(body, status=503, headers=FRESH)
    units = startup.pipeline.pool
    return web.json_response(body | {"units": len(units.states()), "free": units.free}, headers=FRESH)


async def pool(request: web.Request) -> web.Response:
    """Every unit: its index, its state, since when (Unix time), and its session. Empty while loading."""
    pipeline = request.app[STARTUP].pipeline
    units = [_unit(status) for status in pipeline.pool.states()] if pipeline else []
    return web.json_response({"units": units}, headers=FRESH)


def _unit(status: UnitStatus) -> dict[str, Any]:
    return {
        "index": status.index,
        "state": status.state.value,
        "since": round(status.since, 3),
        "session": status.session,
    }
