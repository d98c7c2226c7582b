"""The voice chat page and its files, straight from ``client_web``."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import Any

from aiohttp import web

from server.ice import IceServer
from server.settings import Settings

TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".txt": "text/plain",
}
"""What is served; anything else in the folder belongs to development."""

PRIVATE = frozenset({"tests", "node_modules"})

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "media-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Permissions-Policy": "microphone=(self), camera=(self), speaker-selection=(self), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

FOLDER = web.AppKey("client_web", Path)


def client_web_dir() -> Path:
    """The page's folder: inside the installed package, or at the top of a checkout."""
    installed = Path(__file__).resolve().parent / "client_web"
    return installed if installed.is_dir() else installed.parents[1] / "client_web"


def setup_page(app: web.Application, settings: Settings, folder: Path | None = None) -> None:
    """Add the page at ``/``, its files, ``/client-config.json``, and what callers are to be told before they
    have a key: ``/notice.json``. Goes after every other route.
    """
    app[FOLDER] = (folder or client_web_dir()).resolve()
    turn = settings.turn if settings.turn and settings.turn.serves_callers else None
    kept = {
        "recording": settings.record_calls is not None,
        "transcripts": settings.transcripts is not None or bool(settings.webhook),
    }

    async def client_config(_request: web.Request) -> web.Response:
        servers = (*settings.ice_servers, *(turn.servers(f"page-{token_hex(8)}") if turn else ()))
        body = {
            "ice_servers": [rtc_ice_server(server) for server in servers],
            "version": version("duologue"),
            **kept,
        }
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def notice(_request: web.Request) -> web.Response:
        return web.json_response(kept, headers={"Cache-Control": "no-store"})

    app.on_response_prepare.append(_secure)
    app.router.add_get("/client-config.json", client_config)
    app.router.add_get("/notice.json", notice)
    app.router.add_get(r"/{path:(?!v1/).*}", _file)


def rtc_ice_server(server: IceServer) -> dict[str, Any]:
    """``server`` as an ``RTCIceServer`` of the W3C API."""
    login = {"username": server.username, "credential": server.credential} if server.username else {}
    return {"urls": [server.url], **login}


async def _file(request: web.Request) -> web.FileResponse:
    folder = request.app[FOLDER]
    relative = request.match_info["path"] or "index.html"
    kind = TYPES.get(Path(relative).suffix)
    if kind is None or "\0" in relative:
        raise web.HTTPNotFound
    try:
        path = (folder / relative).resolve()
        found = path.is_relative_to(folder) and not _is_private(path.relative_to(folder)) and path.is_file()
    except OSError:  # a name that is too long
        found = False
    if not found:
        raise web.HTTPNotFound
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    return web.FileResponse(path, headers={"Content-Type": kind + charset, "Cache-Control": "no-cache"})


def _is_private(path: Path) -> bool:
    return any(part in PRIVATE or part.startswith(".") for part in path.parts)


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
