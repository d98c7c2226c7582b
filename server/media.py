"""How well a call's packets travel, read from aiortc. Checked with aiortc 1.16.0.

``getStats()`` gives the same numbers, but as a coroutine, and they are wanted when a call ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiortc import RTCPeerConnection


@dataclass(frozen=True, slots=True)
class Media:
    """What came and went since the last reading."""

    received: int = 0
    """Packets of the caller's voice."""
    lost: int = 0
    """Of those, what never came; a late one is taken back in the next reading."""
    sent: int = 0
    """Packets of speech to the caller."""
    sent_lost: int = 0
    """Of those, what the caller says never came."""
    jitter: float | None = None
    """Of the caller's packets as they come, in seconds (RFC 3550)."""
    sent_jitter: float | None = None
    """Of ours, as the caller sees it."""
    round_trip: float | None = None
    """In seconds, from the caller's last report; None before there was one."""


def unread(_media: Media) -> None:
    """For readings that nobody wants."""


class MediaReader:
    """Reads one connection again and again."""

    def __init__(self, connection: RTCPeerConnection) -> None:
        self._connection = connection
        self._before = Media()

    def read(self) -> Media:
        """What is new since the last time."""
        now, before = self._total(), self._before
        self._before = now
        return Media(
            now.received - before.received,
            now.lost - before.lost,
            now.sent - before.sent,
            now.sent_lost - before.sent_lost,
            now.jitter,
            now.sent_jitter,
            now.round_trip,
        )

    def _total(self) -> Media:
        received = lost = sent = sent_lost = 0
        jitter = sent_jitter = round_trip = None
        for transceiver in self._connection.getTransceivers():
            clock = transceiver._codecs[0].clockRate if transceiver._codecs else 48_000
            for stream in transceiver.receiver._RTCRtpReceiver__remote_streams.values():
                received += stream.packets_received
                lost += stream.packets_lost
                jitter = stream.jitter / clock
            sent += transceiver.sender._RTCRtpSender__packet_count
            for report in transceiver.sender._RTCRtpSender__stats.values():
                if report.type == "remote-inbound-rtp":
                    sent_lost = report.packetsLost
                    sent_jitter = report.jitter / clock
                    round_trip = report.roundTripTime
        return Media(received, lost, sent, sent_lost, jitter, sent_jitter, round_trip)
