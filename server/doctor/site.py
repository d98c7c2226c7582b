"""A server at its public address: certificate, health, what browsers need, and the clock."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector
from cryptography import x509

from server.doctor.finding import Finding

TIMEOUT_S = 5.0
SKEW_S = 30.0
"""Ephemeral keys and TURN logins are made for minutes: a clock this wrong (in seconds) breaks them."""
LIFE_LEFT = 0.1
"""A certificate is renewed with a third of its life to go; with less than this, renewing does not work."""
RENEW = "renew it: see the log of the TLS proxy"
UNREACHABLE = "see that server and proxy run, that the name leads there, and that TCP 80 and 443 are let in"
DAY_S = 86_400.0


async def site(url: str) -> AsyncIterator[Finding]:
    """What a browser would find at ``url``, its path left out. Ends where going on makes no sense."""
    parts = _parts(url)
    if parts is None or not parts.hostname:
        yield Finding("address", f"{url} is none", "give one like https://voice.example.org")
        return
    yield secure_context(url)
    trust = ssl.create_default_context()
    if parts.scheme == "https":
        found = await _connect(parts.hostname, parts.port or 443, trust)
        yield found
        if not found.ok:
            return
    connector = TCPConnector(ssl=trust)
    async with ClientSession(connector=connector, timeout=ClientTimeout(total=TIMEOUT_S)) as session:
        for check in (_healthz, _readyz, _page):
            try:
                findings = await check(session, f"{parts.scheme}://{parts.netloc}")
            except (ClientError, OSError, ValueError) as error:
                yield Finding(check.__name__.strip("_"), _words(error), UNREACHABLE)
                return
            for finding in findings:
                yield finding


def _parts(url: str) -> SplitResult | None:
    """Of an address with a scheme and a port that there are; None for others."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return parts if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        return None


def is_local(url: str) -> bool:
    """Whether browsers take ``url`` for this machine."""
    parts = _parts(url)
    host = (parts and parts.hostname) or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secure_context(url: str) -> Finding:
    """Whether ``getUserMedia`` exists for a page from there (W3C Secure Contexts, section 3.1)."""
    check = "secure context"
    if urlsplit(url).scheme == "https" or is_local(url):
        return Finding(check, "browsers give this page the microphone")
    said = "browsers give the microphone to https and localhost only"
    return Finding(check, said, "put a TLS proxy in front, as compose.yaml does")


async def _connect(host: str, port: int, trust: ssl.SSLContext) -> Finding:
    """Whether the name leads to a server with a good certificate for it."""
    opening = asyncio.open_connection(host, port, ssl=trust)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await opening
    except ssl.SSLCertVerificationError as error:
        return Finding("certificate", error.verify_message.rstrip("."), _mend(error.verify_message))
    except (OSError, TimeoutError) as error:
        return Finding("connection", f"none to {host}:{port}: {_words(error)}", UNREACHABLE)
    found: Mapping[str, Any] = writer.get_extra_info("peercert")
    writer.transport.abort()
    dates = [ssl.cert_time_to_seconds(found[name]) for name in ("notBefore", "notAfter")]
    return life("certificate", *dates)


def _mend(message: str) -> str:
    if "expired" in message:
        return RENEW
    if "match" in message:
        return "get one for this name: see DOMAIN and the log of the TLS proxy"
    return "get one from an authority that browsers know, with the whole chain in its file"


def certificate_file(path: Path) -> Finding:
    """Whether the first certificate of a PEM file is in its time, and for how long."""
    check = f"certificate {path}"
    try:
        first = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        return Finding(check, f"cannot be read: {_words(error)}", "give a certificate in PEM")
    dates = (first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp())
    return life(check, *dates)


def life(check: str, begins: float, ends: float, now: float | None = None) -> Finding:
    """Whether a certificate is in its time, and not near its end. Times are Unix times."""
    at = time.time() if now is None else now
    left = (ends - at) / DAY_S
    if at < begins:
        return Finding(check, "is not valid yet", "set this machine's clock, or wait")
    if left < 0:
        return Finding(check, f"expired {-left:.0f} days ago", RENEW)
    return Finding(
        check, f"good for {left:.0f} days", RENEW if ends - at < LIFE_LEFT * (ends - begins) else ""
    )


async def _healthz(session: ClientSession, origin: str) -> list[Finding]:
    async with session.get(f"{origin}/healthz", allow_redirects=False) as response:
        date = response.headers.get("Date", "")
        body = await response.text()
        if where := response.headers.get("Location"):
            return [Finding("healthz", f"leads on to {where}", "look at that address")]
        if response.status != 200 or '"ok"' not in body:
            return [_not_ours("healthz", response.status)]
    return [Finding("healthz", "ok"), *clock(date)]


def _not_ours(check: str, status: int) -> Finding:
    said = f"status {status}, not from this server"
    return Finding(check, said, "have the proxy pass everything on to the server's port")


def clock(date: str, now: float | None = None) -> list[Finding]:
    """How far this clock is from a ``Date`` header; nothing without one."""
    if not date:
        return []
    try:
        skew = (time.time() if now is None else now) - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return []
    if abs(skew) <= SKEW_S:
        return [Finding("clock", "as the server's")]
    said = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the server's"
    return [
        Finding("clock", said, "set both by NTP (timedatectl set-ntp true): keys and logins expire by it")
    ]


async def _readyz(session: ClientSession, origin: str) -> list[Finding]:
    async with session.get(f"{origin}/readyz") as response:
        found = await response.json()
    if not isinstance(found, dict):
        return [_not_ours("readyz", 200)]
    status, stage = found.get("status"), found.get("stage", "")
    if status == "loading":
        return [Finding("readyz", f"loading {stage}".rstrip(), "wait until the models are loaded")]
    if status != "ready":
        return [Finding("readyz", f"{status}", "see the server's log")]
    if not found.get("free"):
        said = f"all {found.get('units')} places are taken"
        return [Finding("readyz", said, "wait, or raise --num-pipelines")]
    return [Finding("readyz", f"{found['free']} of {found['units']} places are free")]


async def _page(session: ClientSession, origin: str) -> list[Finding]:
    async with session.get(f"{origin}/") as response:
        policy = response.headers.get("Permissions-Policy", "").replace(" ", "")
        if response.status == 401:
            return [Finding("page", "there, behind a login")]
        if response.status != 200:
            return [Finding("page", f"status {response.status}", "have the proxy pass / on to the server")]
    if "microphone=()" in policy:
        return [
            Finding("page", "its Permissions-Policy forbids the microphone", "take that out of the proxy")
        ]
    return [Finding("page", "there")]


def _words(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
