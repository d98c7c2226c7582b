"""Stands in front of every endpoint: who may ask, and from which web pages.

Where a key is needed, whoever has one may ask from anywhere: a browser adds no key by itself. Where none is
needed, any page that the person visits could ask in their name, so it must be one of this server's own, or
allowed: ``Host`` must be an address or a name that is known to be ours, since a page may have its own name
lead here (DNS rebinding), and ``Origin``, if the browser gives one, must be the same or be allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from server.callers import Caller, Quotas, let_in
from server.client_secrets import ClientSecrets
from server.doors import BAD_KEY, REALTIME, Refusal, offered_key, turn_away
from server.errors import readable
from server.keys import EPHEMERAL, Key, Keys

logger = logging.getLogger(__name__)

OPEN = frozenset({"/healthz", "/readyz", "/notice.json", "/{path}"})
"""Routes that anybody may ask for: health, what is kept of calls, and the files of the page. All others are
guarded."""
EPHEMERAL_MAY = frozenset(
    {REALTIME, f"{REALTIME}/calls", f"{REALTIME}/calls/{{call_id}}", f"{REALTIME}/calls/{{call_id}}/hangup"}
) | {"/client-config.json"}
"""Routes for ephemeral keys, which begin and end sessions and nothing else."""
ANY = "*"


class Access:
    """Decides about requests.

    :param origins: of pages that may use the server without a key, ``*`` for all.
    :param host: name that the server listens on.
    :param per_minute: sessions that a caller may begin in a minute, unless their key says otherwise.
    """

    def __init__(
        self, keys: Keys, secrets: ClientSecrets, origins: Sequence[str], host: str, per_minute: int
    ) -> None:
        self._keys = keys
        self._secrets = secrets
        self._origins = frozenset(origins)
        self._names = {host.lower(), *(urlsplit(origin).hostname for origin in origins)}
        self._per_minute = per_minute
        self._quotas = Quotas()

    def caller(self, request: web.Request) -> Caller:
        """Who is asking. Raises Refusal if they may not."""
        key = offered_key(request) or ""
        if key.startswith(EPHEMERAL):
            return self._with_ephemeral(request, key)
        if self._keys.needed:
            known = self._keys.find(key)
            if known is None:
                what = "That API key is not valid." if key else "This server needs an API key."
                raise Refusal(401, "invalid_api_key", f"{what} Send it as: Authorization: Bearer KEY.")
            return self._with(known)
        self._check_place(request)
        return self._anonymous(request)

    def _with_ephemeral(self, request: web.Request, key: str) -> Caller:
        """An ephemeral key opens sessions, and goes no further than the key that it was made with."""
        owner = self._secrets.owner(key)
        if _canonical(request) not in EPHEMERAL_MAY:
            raise Refusal(403, "permission_denied", "An ephemeral key opens sessions and nothing else.")
        if not self._keys.needed:
            return self._anonymous(request)
        known = self._keys.hashed(owner)
        if known is None:
            raise Refusal(
                401, "invalid_api_key", "The key that this ephemeral key was made with is withdrawn."
            )
        return self._with(known)

    def _with(self, key: Key) -> Caller:
        per_minute = self._per_minute if key.per_minute is None else key.per_minute
        return Caller(key.sha256, key.sha256, key.sessions, per_minute, self._quotas)

    def _anonymous(self, request: web.Request) -> Caller:
        return Caller(counted=_network(request.remote), per_minute=self._per_minute, quotas=self._quotas)

    def _check_place(self, request: web.Request) -> None:
        if ANY in self._origins:
            return
        host, origin = request.headers.get("Host", "").lower(), request.headers.get("Origin", "").lower()
        if not self._is_ours(host):
            raise _foreign(f"This server does not know itself as {host!r}", f"http://{host}")
        if origin and origin not in self._origins and origin.partition("://")[2] != host:
            raise _foreign(f"Pages of {origin} may not use this server", origin)

    def _is_ours(self, host: str) -> bool:
        """Whether ``host``, as in the header, is an address or one of our names."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._names or name == "localhost" or name.endswith(".localhost") or _is_address(name)


def setup_access(
    app: web.Application,
    keys: Keys,
    secrets: ClientSecrets,
    *,
    origins: Sequence[str] = (),
    host: str = "127.0.0.1",
    per_minute: int = 0,
) -> None:
    """Guard all routes of ``app`` but the open ones."""
    access = Access(keys, secrets, origins, host, per_minute)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "OPTIONS" or _canonical(request) in OPEN:  # a preflight grants nothing
            return await handler(request)
        try:
            let_in(request, access.caller(request))
        except Refusal as refusal:
            logger.info("%s %r from %s: %s", request.method, request.path, request.remote, refusal)
            if refusal.status == 401 and request.headers.get("Upgrade", "").lower() == "websocket":
                return await turn_away(request, BAD_KEY, str(refusal), refusal.code)
            return readable(refusal.response())
        return await handler(request)

    app.middlewares.append(guard)


def _canonical(request: web.Request) -> str:
    """The path of the route that ``request`` has found; "" if there is none."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def _foreign(what: str, origin: str) -> Refusal:
    named = origin != "null"  # a file, or a page that hides where it is from
    advice = f"allow it with --allow-origin {origin}, or use an API key" if named else "use an API key"
    return Refusal(403, "origin_not_allowed", f"{what}: {advice}.")


def _network(address: str | None) -> str:
    """What one person has of addresses: one of IPv4, a /64 of IPv6."""
    try:
        ip = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))
    return str(ip)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
