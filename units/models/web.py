"""Files behind https URLs, with plain HTTP: Range to go on, one short try to reach a host.

A host that cannot be reached is remembered for the life of the :class:`WebClient`, so that machines
without a way to the model hub pay for that once.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from units.models.catalogue import HUB
from units.models.errors import SourceFailed

logger = logging.getLogger(__name__)

Report = Callable[[int], None]
"""Called with the bytes of a file that are there so far."""

CONNECT_SECONDS = 4.0
READ_SECONDS = 20.0
_BLOCK = 1 << 18
_TRIES = 3


class WebClient:
    """Downloads files, going on where an earlier download stopped."""

    def __init__(self, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._connect_seconds = connect_seconds
        self._unreachable: set[str] = set()

    def download(self, url: str, target: Path, size: int, report: Report) -> None:
        """Make ``target`` the ``size`` bytes behind ``url``. Raises SourceFailed; then what came is kept."""
        url = _mirrored(url)
        self._require_host(url)
        for attempt in range(_TRIES):
            before = _size(target)
            try:
                _continue(url, target, size, report)
            except (urllib.error.HTTPError, _Unusable) as error:
                raise SourceFailed(f"{url} answered {error}") from error
            except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
                logger.info("Download of %s was interrupted (%s)", url, error)
                if attempt == _TRIES - 1 or (attempt and _size(target) == before):
                    raise SourceFailed(f"{url} was interrupted ({error})") from error
            if _size(target) == size:
                return
        raise SourceFailed(f"{url} was interrupted")

    def _require_host(self, url: str) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if host not in self._unreachable and not self._reachable(parts.scheme, host, port):
            logger.info("%s cannot be reached; trying other sources", host)
            self._unreachable.add(host)
        if host in self._unreachable:
            raise SourceFailed(f"{host} cannot be reached")

    def _reachable(self, scheme: str, host: str, port: int) -> bool:
        """Whether a connection opens in time. Name look-up has no time limit, hence the thread."""
        if scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
            return True
        connected = threading.Event()

        def connect() -> None:
            try:
                socket.create_connection((host, port), timeout=self._connect_seconds).close()
            except OSError:
                return
            connected.set()

        thread = threading.Thread(target=connect, name=f"connect {host}", daemon=True)
        thread.start()
        thread.join(self._connect_seconds)
        return connected.is_set()


class _Unusable(Exception):
    """The answer is not the file."""


def _continue(url: str, target: Path, size: int, report: Report) -> None:
    start = _size(target)
    if start > size:
        target.unlink()
        start = 0
    if start == size:
        return
    headers = {"User-Agent": "duologue", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=READ_SECONDS) as answer:
        resumed = answer.status == 206
        length = answer.headers.get("Content-Length")
        if length is not None and int(length) != (size - start if resumed else size):
            raise _Unusable(f"{length} bytes where {size} were expected")
        with target.open("ab" if resumed else "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                report(file.tell())
                if file.tell() > size:
                    raise _Unusable(f"more than the {size} bytes that were expected")


def _mirrored(url: str) -> str:
    """``HF_ENDPOINT`` names a mirror of the hub, as for the hub's own client."""
    mirror = os.environ.get("HF_ENDPOINT", "").rstrip("/")
    return url.replace(HUB, mirror, 1) if mirror and url.startswith(HUB) else url


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
