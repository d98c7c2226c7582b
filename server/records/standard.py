"""What Standard Webhooks say of secrets and signatures, and which receivers there may be."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
from urllib.parse import urlsplit

PREFIX = "whsec_"
_NEAR = [
    ipaddress.ip_network(network)
    for network in ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
]
"""This machine, RFC 1918 and RFC 4193. Not link-local: there are the clouds' metadata services."""
_HOST = re.compile(rb"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?", re.IGNORECASE)


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
        raise ValueError(
            "must be an https address with a valid host and port; "
            "http only to localhost or a private address in digits"
        )


def _is_fit(url: str) -> bool:
    if any(character.isspace() or not character.isprintable() for character in url):
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if not parts.hostname or port == 0 or parts.username is not None:
        return False
    if (address := _address(parts.hostname)) is None:
        near, valid = parts.hostname == "localhost", _is_name(parts.hostname)
    else:
        near, valid = any(address in network for network in _NEAR), True
    return valid and (parts.scheme == "https" or (parts.scheme == "http" and near))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_name(host: str) -> bool:
    try:
        return _HOST.fullmatch(host.encode("idna")) is not None
    except UnicodeError:
        return False
