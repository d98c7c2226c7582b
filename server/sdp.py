"""Offers and answers as text: what aiortc must not see is taken out, what it cannot say is put in.

aiortc aborts the whole negotiation over one section without a common codec, resolves ``.local`` names
one second at a time, and takes end-of-candidates to mean that no peer-reflexive candidate will come.
:func:`read_offer` gives it an offer without those stumbling blocks; :func:`finish_answer` puts the refused
sections back where they were (port 0, RFC 3264 section 6) and announces the public address. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from aiortc.sdp import SessionDescription

MAX_CANDIDATES = 32
"""Remote candidates kept per section: each costs connectivity checks to an address of the peer's choice."""

LOCAL_MAX_MESSAGE_SIZE = 262_144
"""Bytes of one data channel message that we accept (RFC 8841 section 6)."""

DEFAULT_MAX_MESSAGE_SIZE = 65_536
"""Bytes to assume when the peer does not say (RFC 8841 section 6.1)."""

_CODECS = {"opus/48000", "pcmu/8000", "pcma/8000", "g722/8000"}
_STATIC = {"0": "PCMU/8000", "8": "PCMA/8000", "9": "G722/8000"}
_DIRECTIONS = ("sendrecv", "sendonly", "recvonly", "inactive")
_MLINE = re.compile(r"m=(?P<kind>[a-z]+) (?P<port>\d{1,5}) (?P<profile>[A-Z/]+) (?P<formats>\S.*)")
_LINE = re.compile(r"[a-z]=.*")


class OfferError(ValueError):
    """The peer's fault: an offer that cannot be answered. The message says what is wrong with it."""


@dataclass(slots=True)
class Section:
    """One m-line and what follows it, or the lines before the first."""

    lines: list[str] = field(default_factory=list)

    def values(self, name: str) -> Iterator[str]:
        """The values of every ``a=name`` or ``a=name:value``."""
        for line in self.lines:
            attribute, _, value = line[2:].partition(":")
            if line.startswith("a=") and attribute == name:
                yield value

    def value(self, name: str) -> str | None:
        return next(self.values(name), None)

    def drop(self, *names: str) -> None:
        self.lines = [x for x in self.lines if not (x.startswith("a=") and x[2:].partition(":")[0] in names)]

    @property
    def mline(self) -> re.Match[str]:
        match = _MLINE.fullmatch(self.lines[0])
        if match is None:
            raise OfferError(f"not a media description: {self.lines[0][:80]!r}")
        return match

    @property
    def refused_by_peer(self) -> bool:
        """Port 0 refuses a section, unless it is to share another one's port (RFC 8843 section 6)."""
        return self.mline["port"] == "0" and self.value("bundle-only") is None


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer that aiortc can be given."""

    sdp: str
    sections: tuple[str | None, ...]
    """One per m-line of the peer's offer: None if it is negotiated, else the refusal to answer with."""
    bundle: tuple[str, ...]
    """The negotiated mids that the peer wants on one transport."""
    direction: str | None
    """Direction of the audio section as the peer sees it, None without one."""
    max_message_size: int | None
    """Bytes that the peer accepts in one data channel message, None without a data channel."""

    @property
    def hears(self) -> bool:
        """Whether the peer wants to be sent audio."""
        return self.direction in ("sendrecv", "recvonly")


def read_offer(text: str, caller: str | None = None) -> Offer:
    """Check and clean an offer.

    :param caller: IP address that the offer came from, to be tried as well; see :func:`_add_caller`.
    :raises OfferError: if it is not an offer, or has neither a data channel nor audio that we can decode.
    """
    session, *media = _split(text)
    _check_mids(media)
    audio = _first(media, "audio")
    events = _first(media, "application")
    if audio is None and events is None:
        raise OfferError("the offer has no audio and no data channel section")
    kept = [x for x in media if x is audio or x is events]
    refusals = tuple(None if x in kept else _refusal(x) for x in media)
    direction = _clean_audio(session, audio) if audio else None
    size = _clean_events(events) if events else None
    for section in kept:
        _check_transport(session, section)
        _clean_candidates(section)
    bundle = _clean_bundle(session, kept)
    _move_candidates(media, kept, bundle)
    if caller is not None:
        for section in kept[:1] if bundle else kept:
            _add_caller(section, caller)
    sdp = _join([session, *kept])
    _check_parses(sdp)
    return Offer(sdp, refusals, bundle, direction, size)


def finish_answer(answer: str, offer: Offer, public_ip: str | None = None) -> str:
    """The answer to send: refused sections in place, only offered bundling, the public address in candidates.

    :raises ValueError: if there is not a single candidate, which aiortc says nothing about.
    """
    session, *negotiated = _split(answer)
    if not any(x.value("candidate") for x in negotiated):
        raise ValueError("no local candidates")
    session.drop("group")
    if offer.bundle:
        session.lines.append(f"a=group:BUNDLE {' '.join(offer.bundle)}")
    if public_ip:
        for section in negotiated:
            section.lines = [_published(line, public_ip) for line in section.lines]
    rest = iter(negotiated)
    ordered = [next(rest) if refusal is None else Section(refusal.split("\n")) for refusal in offer.sections]
    return _join([session, *ordered])


def _split(text: str) -> list[Section]:
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if not lines or lines[0] != "v=0":
        raise OfferError("not a session description: it does not start with v=0")
    sections = [Section()]
    for line in lines:
        if not _LINE.fullmatch(line):
            raise OfferError(f"not a line of a session description: {line[:80]!r}")
        if line.startswith("m="):
            sections.append(Section())
        sections[-1].lines.append(line)
    return sections


def _join(sections: Iterable[Section]) -> str:
    return "".join(f"{line}\r\n" for section in sections for line in section.lines)


def _check_mids(media: list[Section]) -> None:
    """Either no section is named, or each has exactly one name of its own (RFC 8843 section 7)."""
    mids = [list(x.values("mid")) for x in media if not x.refused_by_peer]
    if not any(mids):
        return
    if any(len(x) != 1 or not re.fullmatch(r"\S+", x[0]) for x in mids):
        raise OfferError("a media section has no a=mid, an empty one, or several")
    if len({x[0] for x in mids}) < len(mids):
        raise OfferError("two media sections have the same a=mid")


def _first(media: list[Section], kind: str) -> Section | None:
    return next((x for x in media if x.mline["kind"] == kind and not x.refused_by_peer), None)


def _refusal(section: Section) -> str:
    m = section.mline
    lines = [f"m={m['kind']} 0 {m['profile']} {m['formats']}", "c=IN IP4 0.0.0.0", "a=inactive"]
    mid = section.value("mid")
    return "\n".join(lines if mid is None else [*lines, f"a=mid:{mid}"])


def _clean_audio(session: Section, audio: Section) -> str:
    """Leave only codecs that exist and a direction that is said; return that direction."""
    formats = audio.mline["formats"].split()
    known = {x.partition(" ")[0]: x.partition(" ")[2] for x in audio.values("rtpmap")}
    for payload_type in formats:
        if payload_type not in known and payload_type in _STATIC:
            known[payload_type] = _STATIC[payload_type]
            audio.lines.append(f"a=rtpmap:{payload_type} {_STATIC[payload_type]}")
    if not any("/".join(known.get(x, "").lower().split("/")[:2]) in _CODECS for x in formats):
        raise OfferError("the audio section has no usable codec: offer Opus, PCMU, PCMA or G722")
    if audio.value("rtcp-mux") is None:
        raise OfferError("the audio section does not offer a=rtcp-mux")
    audio.lines = [
        x
        for x in audio.lines
        if not x.startswith(("a=fmtp:", "a=rtpmap:"))
        or x.partition(":")[2].partition(" ")[0] in set(formats) & set(known)
    ]
    named = [x for x in _DIRECTIONS if audio.value(x) is not None] or [
        x for x in _DIRECTIONS if session.value(x) is not None
    ]
    direction = named[0] if named else "sendrecv"
    audio.drop(*_DIRECTIONS)
    audio.lines.append(f"a={direction}")
    return direction


def _clean_events(events: Section) -> int:
    """Say the SCTP port that may be left out; return how large a message the peer accepts."""
    m = events.mline
    if m["profile"] == "DTLS/SCTP":
        if not m["formats"].split()[0].isdecimal():
            raise OfferError("the data channel section names no SCTP port")
    elif "webrtc-datachannel" not in m["formats"]:
        raise OfferError("the application section is not a WebRTC data channel")
    elif events.value("sctp-port") is None:
        events.lines.append("a=sctp-port:5000")
    size = events.value("max-message-size") or str(DEFAULT_MAX_MESSAGE_SIZE)
    if not size.isdecimal():
        raise OfferError("a=max-message-size is not a number")
    return int(size) or LOCAL_MAX_MESSAGE_SIZE


def _check_transport(session: Section, section: Section) -> None:
    for name in ("ice-ufrag", "ice-pwd", "fingerprint", "setup"):
        if not (section.value(name) or session.value(name)):
            raise OfferError(f"the {section.mline['kind']} section has no a={name}")
    if (section.value("setup") or session.value("setup")) not in ("actpass", "active", "passive"):
        raise OfferError("a=setup is none of actpass, active and passive")


def _clean_candidates(section: Section) -> None:
    """Keep candidates that can be checked. Never end-of-candidates: peer-reflexive ones come later still."""
    usable = [x for x in section.values("candidate") if _usable(x)][:MAX_CANDIDATES]
    section.drop("candidate", "end-of-candidates")
    section.lines += [f"a=candidate:{x}" for x in usable]


def _usable(candidate: str) -> bool:
    """UDP to a literal address; names are not resolved (RFC 8839 section 5.1, mDNS names included)."""
    parts = candidate.split()
    if len(parts) < 8 or parts[1] != "1" or parts[2].lower() != "udp" or len(parts) % 2:
        return False
    try:
        ipaddress.ip_address(parts[4])
    except ValueError:
        return False
    numbers = parts[3].isdecimal() and parts[5].isdecimal() and 0 < int(parts[5]) < 65_536
    return numbers and parts[6] == "typ" and parts[7] in ("host", "srflx", "relay")


def _clean_bundle(session: Section, kept: list[Section]) -> tuple[str, ...]:
    mids = [x.value("mid") or "" for x in kept]
    if len(set(mids)) < len(mids):
        raise OfferError("two media sections have the same a=mid, or none")
    groups = [x.split() for x in session.values("group")]
    offered = next((x[1:] for x in groups if x and x[0] == "BUNDLE"), [])
    bundle = tuple(x for x in offered if x in mids)
    session.drop("group")
    if bundle:
        session.lines.append(f"a=group:BUNDLE {' '.join(bundle)}")
    return bundle


def _move_candidates(media: list[Section], kept: list[Section], bundle: tuple[str, ...]) -> None:
    """If the section that carried the bundle's candidates is refused, they go to the one that does now."""
    carrier = next((x for x in kept if bundle and x.value("mid") == bundle[0]), None)
    if carrier is None or carrier.value("candidate") is not None:
        return
    for section in media:
        if section not in kept and section.value("ice-ufrag") == carrier.value("ice-ufrag"):
            _clean_candidates(section)
            carrier.lines += [f"a=candidate:{x}" for x in section.values("candidate")]


def _add_caller(section: Section, caller: str) -> None:
    """Make a candidate of an address, with a port that nobody listens on.

    A relay lets in packets from addresses that it was told of (RFC 8656 section 9), whatever their port.
    Browsers hide theirs, and have no other without a STUN server. A check to this one tells the relay.
    """
    section.lines.append(f"a=candidate:caller 1 udp 1 {caller} 9 typ host")


def _check_parses(sdp: str) -> None:
    try:
        SessionDescription.parse(sdp)
    except (ValueError, AssertionError, LookupError, StopIteration, TypeError, AttributeError) as error:
        raise OfferError(f"the offer cannot be parsed: {error!r}") from error


def _published(line: str, public_ip: str) -> str:
    """``line`` with the address of a host candidate, or of the connection, replaced by one of its family."""
    family = "c=IN IP6 " if ":" in public_ip else "c=IN IP4 "
    if line.startswith(family) and line != "c=IN IP4 0.0.0.0":
        return family + public_ip
    parts = line.split()
    if line.startswith("a=candidate:") and parts[7] == "host" and (":" in parts[4]) == (":" in public_ip):
        parts[4] = public_ip
        return " ".join(parts)
    return line
