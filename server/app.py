"""The aiohttp application: health, calls and the page around one pipeline."""

from __future__ import annotations

from aiohttp import web

from server.calls import setup_calls
from server.client_secrets import setup_client_secrets
from server.errors import api_errors
from server.health import setup_health
from server.page import client_web_dir, setup_page
from server.settings import Settings
from server.socket import setup_sockets
from server.startup import Load, LoadedPool, Report, Startup, setup_startup
from units import Pipeline

__all__ = ["build_app", "client_web_dir"]

MAX_BODY_BYTES = 1024 * 1024


def build_app(
    settings: Settings, pipeline: Pipeline | Load, announce: Report = lambda _: None
) -> web.Application:
    """The server's application, which owns ``pipeline`` and stops it when it is cleaned up.

    ``pipeline`` is a loaded one, or a blocking function that loads it while the app already answers;
    ``announce`` is told, from any thread, what is being loaded.
    """
    app = web.Application(middlewares=[api_errors], client_max_size=MAX_BODY_BYTES)
    startup = Startup(pipeline if callable(pipeline) else lambda _: pipeline, announce)
    setup_startup(app, startup, settings.shutdown_grace_s)
    setup_health(app)
    pool = LoadedPool(startup)
    secrets = setup_client_secrets(app, pool)
    calls = setup_calls(app, pool, settings, secrets)
    setup_sockets(app, pool, secrets, calls, strict=settings.strict_protocol)
    setup_page(app, settings)
    return app
