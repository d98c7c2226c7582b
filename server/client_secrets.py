"""Ephemeral keys: a page gets one from its own server, and what its session is to be is in the key.

``POST /v1/realtime/client_secrets``, and the older ``POST /v1/realtime/sessions``. Keys live in memory.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from server.callers import caller_of
from server.doors import FRESH, MALFORMED, Refusal, answering, in_time, parsed, preflight
from server.keys import EPHEMERAL
from units.realtime.config import SessionConfig
from units.realtime.legacy import modern
from units.realtime.schema import fields, integer, one_of
from units.realtime.service import ServiceConfig, random_id

PATH = "/v1/realtime/client_secrets"
SESSIONS_PATH = "/v1/realtime/sessions"
TRANSCRIPTION_SESSIONS_PATH = "/v1/realtime/transcription_sessions"
MAX_KEYS = 10_000
"""Of one owner, whose oldest give way: a forgotten page must not fill the memory."""
LIFETIME = 600
"""Seconds, unless the request says otherwise."""

_FLAT = ("type", "model", "voice", "instructions")
"""Members by which a bare session is known, as older clients send it."""
_expiry = fields({"anchor": one_of("created_at"), "seconds": integer(10, 7200)})
_request = fields({"expires_after": _expiry, "session": fields({}, open=True)})


class Defaults(Protocol):
    """Whoever knows what a session is like when nobody says anything."""

    def service_config(self) -> ServiceConfig: ...


@dataclass(frozen=True, slots=True)
class _Key:
    expires_at: int
    session: dict[str, Any]
    owner: str
    """Of the key that it was made with; see :class:`server.callers.Caller`."""


class ClientSecrets:
    """The keys of this server, and the handlers that make them."""

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults
        self._keys: dict[str, _Key] = {}

    def settings(self, key: str | None) -> tuple[dict[str, Any], ...]:
        """What a session that is opened with ``key`` begins with. Raises Refusal for an ``ek_`` that is not
        valid; other keys mean nothing here."""
        return (self._valid(key).session,) if key is not None and key.startswith(EPHEMERAL) else ()

    def owner(self, key: str) -> str:
        """Who had this ephemeral key made. Raises Refusal if it is not valid."""
        return self._valid(key).owner

    def _valid(self, key: str) -> _Key:
        known = self._keys.get(key)
        if known is None or known.expires_at <= time.time():
            self._keys.pop(key, None)
            raise Refusal(401, "invalid_api_key", "This ephemeral key is unknown or has expired.")
        return known

    def understood(self, session: dict[str, Any]) -> dict[str, Any]:
        """A session as a client wrote it, in today's shape, unless the server is strict. Raises Refusal while
        the models are loading."""
        return session if self._defaults.service_config().strict else modern(session)

    async def create(self, request: web.Request) -> web.Response:
        """Make a key."""
        given = await _json(request)
        flat = given.keys() & _FLAT and not given.keys() & {"session", "expires_after"}
        body = _request({"session": given} if flat else given, "")
        seconds = body.get("expires_after", {}).get("seconds", LIFETIME)
        session = self.understood(body.get("session") or {"type": "realtime"})
        value, expires_at, effective = self._mint(request, session, seconds)
        made = {"value": value, "expires_at": expires_at, "session": effective}
        return web.json_response(made, headers=FRESH)

    async def create_session(self, request: web.Request) -> web.Response:
        """Make a key, the older way: the body is the session, and the key is in it."""
        return self._older(request, await _json(request))

    async def create_transcription(self, request: web.Request) -> web.Response:
        """The same for a session that only transcribes."""
        return self._older(request, {"type": "transcription", **await _json(request)})

    def _older(self, request: web.Request, session: dict[str, Any]) -> web.Response:
        value, expires_at, effective = self._mint(request, modern(session), LIFETIME)
        secret = {"value": value, "expires_at": expires_at}
        return web.json_response({**effective, "client_secret": secret}, headers=FRESH)

    def _mint(
        self, request: web.Request, session: dict[str, Any], seconds: int
    ) -> tuple[str, int, dict[str, Any]]:
        config = self._defaults.service_config()
        effective = SessionConfig.default(
            id=random_id("sess"),
            model=config.model,
            instructions=config.instructions,
            voice=config.voice,
            expires_at=0,
            mcp_servers=config.mcp_servers,
            locked=config.locked,
        ).begun(session)
        now, owner = time.time(), caller_of(request).owner
        self._make_room(now, owner)
        value, expires_at = EPHEMERAL + secrets.token_hex(20), int(now) + seconds
        self._keys[value] = _Key(expires_at, session, owner)
        return value, expires_at, effective.wire()

    def _make_room(self, now: float, owner: str) -> None:
        for old in [key for key, known in self._keys.items() if known.expires_at <= now]:
            del self._keys[old]
        theirs = [key for key, known in self._keys.items() if known.owner == owner]
        for old in theirs[: max(0, len(theirs) - MAX_KEYS + 1)]:
            del self._keys[old]


def setup_client_secrets(app: web.Application, defaults: Defaults) -> ClientSecrets:
    """Add the routes that make ephemeral keys to ``app``."""
    keys = ClientSecrets(defaults)
    for path, handler in (
        (PATH, keys.create),
        (SESSIONS_PATH, keys.create_session),
        (TRANSCRIPTION_SESSIONS_PATH, keys.create_transcription),
    ):
        app.router.add_route("POST", path, answering(handler))
        app.router.add_route("OPTIONS", path, preflight)
    return keys


async def _json(request: web.Request) -> dict[str, Any]:
    """The object in the body; an empty body is an empty object. Raises Refusal."""
    try:
        async with in_time():
            text = await request.text() if request.can_read_body else ""
    except MALFORMED as error:
        raise Refusal(400, "invalid_body", f"The body cannot be read: {error}.") from error
    return parsed(text or "{}", "body")
