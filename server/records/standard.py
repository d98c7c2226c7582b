"""What Standard Webhooks say of secrets and signatures, and which receivers there may be."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from urllib.parse import urlsplit

PREFIX = "whsec_"


def secret_key(secret: str) -> bytes:
    """The key in ``secret``, which is ``whsec_`` and 24 to 64 bytes in base64. Raises ValueError."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        make = f'echo "{PREFIX}$(openssl rand -base64 32)"'
        raise ValueError(f"must be {PREFIX} and 24 to 64 bytes in base64: {make}")
    return key


def signed(key: bytes, message_id: str, at: int, body: bytes) -> dict[str, str]:
    """Headers of a POST with this body at the Unix time ``at``."""
    digest = hmac.digest(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256)
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def check_receiver(url: str) -> None:
    """Raise ValueError unless what is said may be sent there: over https, or near enough to need none."""
    if not _is_fit(url):
        raise ValueError("must be an https address; http only to localhost or a private address in digits")


def _is_fit(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if not parts.hostname or parts.username is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_near(parts.hostname))


def _is_near(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or (address.is_private and not address.is_unspecified)
