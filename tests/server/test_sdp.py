from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from hypothesis import given
from hypothesis import strategies as st

from server.sdp import MAX_CANDIDATES, OfferError, finish_answer, read_offer

FIXTURES = Path(__file__).parent / "fixtures"

HEAD = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
GROUP = "a=group:BUNDLE 0 1\r\n"
SECURE = (
    "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=setup:actpass\r\n"
    "a=fingerprint:sha-256 " + ":".join(["AB"] * 32) + "\r\n"
)
AUDIO = (
    "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=rtcp-mux\r\n"
    "a=rtpmap:111 opus/48000/2\r\na=sendrecv\r\n" + SECURE
)
EVENTS = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:1\r\na=sctp-port:5000\r\n" + SECURE
VIDEO = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:2\r\na=rtcp-mux\r\na=rtpmap:96 AV1/90000\r\n" + SECURE
WHOLE = HEAD + GROUP + AUDIO + EVENTS


def fixture(name: str) -> str:
    return (FIXTURES / f"{name}.sdp").read_text()


async def answered(text: str, public_ip: str | None = None) -> str:
    """What we answer to ``text``, without a network peer."""
    offer = read_offer(text)
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    if offer.direction:
        connection.addTransceiver("audio", "sendrecv")
    await connection.setRemoteDescription(RTCSessionDescription(offer.sdp, "offer"))
    await connection.setLocalDescription()
    answer = finish_answer(connection.localDescription.sdp, offer, public_ip)
    await connection.close()
    return answer


def mlines(sdp: str) -> list[str]:
    return [x for x in sdp.splitlines() if x.startswith("m=")]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("chromium_audio_data", ["audio", "application"]),
        ("chromium_audio_video_data", ["audio", "video", "application"]),
        ("chromium_recvonly_no_candidates", ["audio", "application"]),
        ("chromium_data_only", ["application"]),
        ("firefox_audio_data", ["audio", "application"]),
        ("firefox_audio_video_data", ["audio", "video", "application"]),
    ],
)
async def test_offers_of_browsers_are_answered_section_by_section(name: str, kinds: list[str]) -> None:
    answer = await answered(fixture(name))
    assert [x[2:].split()[0] for x in mlines(answer)] == kinds
    assert all((x.split()[1] == "0") == x.startswith("m=video") for x in mlines(answer))
    assert answer.count("a=setup:active") == len(kinds) - kinds.count("video")


async def test_the_answer_names_a_stream_and_no_discontinuous_transmission() -> None:
    answer = await answered(WHOLE.replace("a=sendrecv", "a=fmtp:111 usedtx=1;useinbandfec=1\r\na=sendrecv"))
    assert "a=msid:" in answer
    assert "usedtx" not in answer


async def test_the_answer_accepts_messages_of_256_kilobytes() -> None:
    assert "a=max-message-size:262144" in await answered(WHOLE)


@pytest.mark.parametrize(
    ("offered", "answer", "hears"),
    [
        ("sendrecv", "sendrecv", True),
        ("recvonly", "sendonly", True),
        ("sendonly", "recvonly", False),
        ("inactive", "inactive", False),
    ],
)
async def test_the_answer_mirrors_the_direction(offered: str, answer: str, hears: bool) -> None:
    text = WHOLE.replace("a=sendrecv", f"a={offered}")
    assert f"a={answer}\r\n" in await answered(text)
    assert read_offer(text).hears is hears


def test_a_direction_for_the_whole_session_counts() -> None:
    assert read_offer(HEAD + "a=recvonly\r\n" + AUDIO.replace("a=sendrecv\r\n", "")).direction == "recvonly"


def test_no_direction_means_both() -> None:
    assert read_offer(HEAD + AUDIO.replace("a=sendrecv\r\n", "")).direction == "sendrecv"


async def test_refused_sections_keep_their_place_and_leave_the_bundle() -> None:
    answer = await answered(HEAD + "a=group:BUNDLE 2 0 1\r\n" + VIDEO + AUDIO + EVENTS)
    assert [x.split()[0] for x in mlines(answer)] == ["m=video", "m=audio", "m=application"]
    assert mlines(answer)[0] == "m=video 0 UDP/TLS/RTP/SAVPF 96"
    assert "a=group:BUNDLE 0 1\r\n" in answer


def test_candidates_of_a_refused_section_pass_to_the_one_that_carries_the_bundle() -> None:
    candidate = "a=candidate:1 1 udp 1 192.0.2.9 5000 typ host"
    offer = read_offer(HEAD + "a=group:BUNDLE 2 0\r\n" + VIDEO + candidate + "\r\n" + AUDIO)
    assert candidate in offer.sdp


async def test_no_bundle_is_answered_where_none_was_offered() -> None:
    assert "BUNDLE" not in await answered(HEAD + AUDIO + EVENTS)


async def test_a_section_to_be_bundled_may_have_port_0() -> None:
    events = EVENTS.replace("m=application 9", "m=application 0") + "a=bundle-only\r\n"
    answer = await answered(HEAD + GROUP + AUDIO + events)
    assert " 0 " not in mlines(answer)[1]


async def test_a_section_with_port_0_stays_refused() -> None:
    answer = await answered(
        HEAD + "a=group:BUNDLE 0\r\n" + AUDIO + EVENTS.replace("m=application 9", "m=application 0")
    )
    assert " 0 " in mlines(answer)[1]


@pytest.mark.parametrize(
    "candidate",
    [
        "1 1 udp 2113937151 3c8a1f0e-51d6-4f0e-9a51-5a1f0e3c8a1f.local 50000 typ host",
        "1 1 udp 2113937151 example.org 50000 typ host",
        "1 1 tcp 1518214911 192.0.2.2 9 typ host tcptype active",
        "1 2 udp 2113937151 192.0.2.2 50000 typ host",
        "1 1 udp 2113937151 192.0.2.2 70000 typ host",
        "1 1 udp 2113937151 192.0.2.2 50000 typ",
        "",
    ],
)
def test_candidates_that_cannot_be_checked_are_dropped(candidate: str) -> None:
    assert "a=candidate" not in read_offer(WHOLE + f"a=candidate:{candidate}\r\n").sdp


def test_at_most_so_many_candidates_are_kept() -> None:
    many = "".join(f"a=candidate:1 1 udp 1 192.0.2.1 {1000 + i} typ host\r\n" for i in range(10_000))
    assert read_offer(HEAD + GROUP + AUDIO + EVENTS + many).sdp.count("a=candidate") == MAX_CANDIDATES


def test_candidates_never_end() -> None:
    assert "end-of-candidates" not in read_offer(WHOLE + "a=end-of-candidates\r\n").sdp


async def test_static_payload_types_need_no_rtpmap() -> None:
    audio = AUDIO.replace("SAVPF 111", "SAVPF 0").replace("a=rtpmap:111 opus/48000/2\r\n", "")
    assert "PCMU/8000" in await answered(HEAD + audio)


async def test_the_public_address_replaces_host_addresses() -> None:
    answer = await answered(WHOLE, public_ip="203.0.113.5")
    hosts = [x.split() for x in answer.splitlines() if "typ host" in x and ":" not in x.split()[4]]
    assert hosts
    assert {x[4] for x in hosts} == {"203.0.113.5"}
    assert {x for x in answer.splitlines() if x.startswith("c=IN IP4")} <= {"c=IN IP4 203.0.113.5"}


def test_an_answer_without_candidates_is_an_error() -> None:
    with pytest.raises(ValueError, match="no local candidates"):
        finish_answer(HEAD + AUDIO, read_offer(HEAD + AUDIO))


@pytest.mark.parametrize(
    ("line", "size"),
    [("", 65_536), ("a=max-message-size:0\r\n", 262_144), ("a=max-message-size:1000\r\n", 1000)],
)
def test_the_peer_says_how_large_a_message_may_be(line: str, size: int) -> None:
    assert read_offer(WHOLE + line).max_message_size == size


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "v=0"),
        ("hello", "v=0"),
        (HEAD, "no audio and no data channel"),
        (HEAD + VIDEO, "no audio and no data channel"),
        ("v=0\r\n\r\nm=", "not a line"),
        (HEAD + "m=audio\r\n", "not a media description"),
        (HEAD + AUDIO.replace("opus/48000/2", "G729/8000"), "no usable codec"),
        (HEAD + AUDIO.replace("a=rtcp-mux\r\n", ""), "rtcp-mux"),
        (HEAD + AUDIO.replace("a=ice-ufrag:abcd\r\n", ""), "a=ice-ufrag"),
        (HEAD + AUDIO.replace("a=fingerprint", "a=footprint"), "a=fingerprint"),
        (HEAD + AUDIO.replace("a=setup:actpass", "a=setup:holdconn"), "a=setup"),
        (HEAD + AUDIO + EVENTS.replace("a=mid:1", "a=mid:0"), "same a=mid"),
        (HEAD + EVENTS.replace("webrtc-datachannel", "something"), "not a WebRTC data channel"),
        (
            HEAD + AUDIO.replace("a=rtpmap:111 opus/48000/2", "a=rtpmap:111 opus/48000/2\r\na=ssrc:x y"),
            "parsed",
        ),
        (WHOLE + "a=max-message-size:many\r\n", "max-message-size"),
    ],
)
def test_bad_offers_are_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(OfferError, match=reason):
        read_offer(text)


@given(st.integers(0, len(WHOLE)), st.text(max_size=20))
def test_damaged_offers_are_read_or_refused(position: int, damage: str) -> None:
    with contextlib.suppress(OfferError):
        read_offer(WHOLE[:position] + damage + WHOLE[position + len(damage) :])


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("a=mid:0\r\n", "a=mid:0\r\na=mid:1\r\n"),
        WHOLE.replace("a=mid:0\r\n", "a=mid\r\n"),
        WHOLE.replace("a=mid:1\r\n", "a=mid:\r\n"),
        WHOLE.replace("a=mid:1\r\n", ""),
        WHOLE.replace("a=mid:1\r\n", "a=mid:0\r\n"),
    ],
)
def test_a_section_without_exactly_one_mid_of_its_own_is_refused(text: str) -> None:
    with pytest.raises(OfferError, match="a=mid"):
        read_offer(text)


def test_an_empty_rtpmap_is_ignored() -> None:
    offer = read_offer(WHOLE.replace("a=sendrecv", "a=rtpmap:\r\na=fmtp:\r\na=sendrecv"))
    assert "a=rtpmap:\r\n" not in offer.sdp


async def test_a_lone_section_without_a_mid_is_answered() -> None:
    assert "m=audio" in await answered(HEAD + AUDIO.replace("a=mid:0\r\n", ""))


@pytest.mark.parametrize(("sdp", "sections"), [(WHOLE, 1), (HEAD + AUDIO + EVENTS, 2), (HEAD + EVENTS, 1)])
def test_the_address_an_offer_came_from_is_tried_on_every_transport(sdp: str, sections: int) -> None:
    candidate = "a=candidate:caller 1 udp 1 198.51.100.7 9 typ host"
    assert read_offer(sdp, "198.51.100.7").sdp.count(candidate) == sections
    assert candidate not in read_offer(sdp).sdp
