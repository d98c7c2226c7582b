"""The aiohttp application: health, calls and the page around one pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from server.access import setup_access
from server.calls import setup_calls
from server.client_secrets import setup_client_secrets
from server.errors import api_errors
from server.health import setup_health
from server.keys import Keys
from server.metrics import setup_metrics
from server.page import client_web_dir, setup_page
from server.records.setup import setup_records
from server.settings import Settings
from server.socket import setup_sockets
from server.startup import Load, LoadedPool, Report, Startup, setup_startup
from server.watch import Watcher
from units import Pipeline

__all__ = ["build_app", "client_web_dir"]

MAX_BODY_BYTES = 1024 * 1024


def build_app(
    settings: Settings,
    pipeline: Pipeline | Load,
    announce: Report = lambda _: None,
    keys: Keys | None = None,
    watchers: Sequence[Watcher] = (),
) -> web.Application:
    """The server's application, which owns ``pipeline`` and stops it when it is cleaned up.

    ``pipeline`` is a loaded one, or a blocking function that loads it while the app already answers;
    ``announce`` is told, from any thread, what is being loaded. ``keys`` are those of the settings.
    ``watchers`` are told of every session. Raises SettingsError when records cannot be kept.
    """
    app = web.Application(middlewares=[api_errors], client_max_size=MAX_BODY_BYTES)
    watchers = (*watchers, *setup_records(app, settings))
    startup = Startup(pipeline if callable(pipeline) else lambda _: pipeline, announce)
    setup_startup(app, startup)
    setup_health(app)
    metrics = setup_metrics(app)
    watchers = (metrics.watch, *watchers)
    pool = LoadedPool(startup)
    secrets = setup_client_secrets(app, pool)
    calls = setup_calls(app, pool, settings, secrets, watchers, metrics.media)
    setup_sockets(app, pool, secrets, calls, strict=settings.strict_protocol, watchers=watchers)
    setup_page(app, settings)
    setup_access(
        app,
        keys or Keys(settings.keys_path, settings.api_key.get_secret_value()),
        secrets,
        origins=settings.allow_origin,
        host=settings.host,
        per_minute=settings.sessions_per_minute,
    )
    return app
