"""API keys: who may use this server.

Their SHA-256 is kept in a file that is read again when it changes, so that a key can be made or withdrawn
without a restart. A key has 256 random bits: there is nothing to guess, and no need for a slow hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

EPHEMERAL = "ek_"
"""How keys begin that :mod:`server.client_secrets` makes."""
_PREFIX = "dk_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class KeysError(Exception):
    """The keys file, or what is to become of it, is wrong. ``str(error)`` is one sentence."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key; never the key itself."""

    name: str
    sha256: str
    sessions: int | None = None
    """Sessions at a time; None: as many as there are units."""
    per_minute: int | None = None
    """Sessions that may begin in a minute; None: as the server's settings say, 0: any number."""


def new_key() -> str:
    """A key, to be shown once."""
    return _PREFIX + secrets.token_urlsafe(32)


def sha256(key: str) -> str:
    """What is kept of ``key``."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def default_keys_file() -> Path:
    """``duologue/keys.json`` in the user's configuration folder (XDG base directories)."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "duologue" / "keys.json"


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys in ``path``; none if it is empty or not there. Raises KeysError."""
    try:
        text = path.read_text(encoding="utf-8")
        return tuple(map(_key, json.loads(text)["keys"])) if text.strip() else ()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise KeysError(f"The keys file {path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, LookupError, TypeError) as error:
        raise KeysError(f"{path} is not a keys file.") from error


def write_keys(path: Path, keys: Iterable[Key]) -> None:
    """Replace the file in one step, readable by its owner only. Raises KeysError."""
    text = json.dumps({"keys": [asdict(key) for key in keys]}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keys")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        raise KeysError(f"The keys file {path} cannot be written: {error.strerror or error}.") from error


def checked_name(name: str) -> str:
    """``name``, if a key may be called that. Raises KeysError."""
    if not _NAME.fullmatch(name):
        raise KeysError(f"{name!r} is no name for a key: letters, digits, '.', '_' and '-', 64 at most.")
    return name


class Keys:
    """The keys that are valid now: those in the file, and one from the environment.

    Once a key has been needed it stays so until the server ends: withdrawing the last one must not open the
    doors. Raises KeysError if the file is wrong at the start; later that is logged, and its keys are refused.
    """

    def __init__(self, path: Path, key: str = "") -> None:
        self._path = path
        self._own = (Key("DUOLOGUE_API_KEY", sha256(key)),) if key else ()
        self._version = _version(path)
        self._known = self._own + read_keys(path)
        self._needed = bool(self._known)

    @property
    def needed(self) -> bool:
        """Whether nobody is let in without a key."""
        self._refresh()
        return self._needed

    def find(self, key: str) -> Key | None:
        """What is known of ``key``, if it is valid."""
        return self.hashed(sha256(key))

    def hashed(self, digest: str) -> Key | None:
        """The valid key with this SHA-256. Takes as long whichever it is."""
        self._refresh()
        found = [known for known in self._known if hmac.compare_digest(known.sha256, digest)]
        return found[0] if found else None

    def _refresh(self) -> None:
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._known = self._own + read_keys(self._path)
            logger.info("%d keys are valid now", len(self._known))
        except KeysError as error:
            self._known = self._own
            self._needed = True
            logger.error("%s No key in it is valid.", error)
        self._needed = self._needed or bool(self._known)


def _version(path: Path) -> tuple[int, ...]:
    """Something that changes when the file does."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _key(entry: dict[str, Any]) -> Key:
    key = Key(**entry)
    if not (_NAME.fullmatch(key.name) and _SHA256.fullmatch(key.sha256)):
        raise ValueError("not a name and a SHA-256")
    for limit in (key.sessions, key.per_minute):
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ValueError("not a limit")
    return key
