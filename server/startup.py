"""From "the port is open" to "the chain is warm": the server answers while the models load on a thread.

Until then the page loads, ``/healthz`` is green, ``/readyz`` is red and calls are refused with 503.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum

from aiohttp import web

from server.doors import Refusal
from units import Pipeline, PipelineUnit
from units.realtime.service import ServiceConfig

logger = logging.getLogger(__name__)


Report = Callable[[str], None]
"""Told in a few words what is being loaded; may be called from any thread."""

Load = Callable[[Report], Pipeline]
"""Builds the pipeline; blocks. Raises EngineUnavailable."""


class Phase(Enum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"


class Startup:
    """Loads one pipeline, and knows how far that is. Everything but ``report`` is for the loop's thread."""

    def __init__(self, load: Load, announce: Report = lambda _: None) -> None:
        self.phase = Phase.LOADING
        self.stage = ""
        self.pipeline: Pipeline | None = None
        self.loaded = asyncio.Event()
        """Set when loading is over, either way; :attr:`failure` tells which."""
        self.failure: BaseException | None = None
        self._load = load
        self._loading: Future[Pipeline] | None = None
        self._announce = announce

    @property
    def busy(self) -> bool:
        """True while the thread that loads is at work, which nothing can interrupt."""
        return self._loading is not None and self._loading.running()

    def report(self, stage: str) -> None:
        """Say what is being loaded now; from any thread."""
        self.stage = stage
        self._announce(stage)

    async def load(self) -> None:
        """Load on a thread of its own, then start the units on the running loop."""
        began = time.monotonic()
        executor = ThreadPoolExecutor(1, "loading")
        self._loading = executor.submit(self._load, self.report)
        executor.shutdown(wait=False)
        pipeline = await asyncio.wrap_future(self._loading)
        pipeline.start()
        self.pipeline = pipeline
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY
        logger.info("Loaded in %.1f s.", time.monotonic() - began)

    def settle(self, task: asyncio.Task[None]) -> None:
        """Note how loading ended."""
        self.failure = None if task.cancelled() else task.exception()
        if self.failure is not None:
            self.phase = Phase.FAILED
        self.loaded.set()

    async def stop(self) -> None:
        """Stop the units, if there are any."""
        if self.pipeline is not None:
            await self.pipeline.stop()


class LoadedPool:
    """The pipeline's pool, for the doors, which are set up before it is loaded."""

    def __init__(self, startup: Startup) -> None:
        self._startup = startup

    def claim(self) -> PipelineUnit:
        """A free unit. Raises PoolFull, and Refusal while the models are loading or the server stops."""
        return self._pipeline.pool.claim()

    def service_config(self) -> ServiceConfig:
        """What sessions are like when nobody says anything. Raises Refusal as :meth:`claim` does."""
        return self._pipeline.service_config()

    @property
    def _pipeline(self) -> Pipeline:
        if self._startup.phase is Phase.STOPPING:
            raise Refusal(503, "shutting_down", "The server is being restarted; try again soon.")
        if self._startup.pipeline is None:
            raise Refusal(503, "model_loading", "The models are still loading; try again soon.")
        return self._startup.pipeline


STARTUP = web.AppKey("startup", Startup)


def setup_startup(app: web.Application, startup: Startup) -> None:
    """Load when the app starts, and stop the units when it is cleaned up."""
    app[STARTUP] = startup
    app.cleanup_ctx.append(_pipeline)
    app.on_shutdown.append(_stopping)


async def _pipeline(app: web.Application) -> AsyncIterator[None]:
    startup = app[STARTUP]
    task = asyncio.create_task(startup.load(), name="loading")
    task.add_done_callback(startup.settle)
    yield
    task.cancel()
    await startup.stop()


async def _stopping(app: web.Application) -> None:
    app[STARTUP].phase = Phase.STOPPING
