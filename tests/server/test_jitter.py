from __future__ import annotations

import logging
import random

import pytest

from server import jitter
from server.jitter import PATIENCE, Reorder, adopt


def through(sequences: list[int]) -> list[list[int]]:
    """What comes out after each packet that goes in; a packet is its own sequence number."""
    reorder: Reorder[int] = Reorder()
    return [reorder.add(x, x) for x in sequences]


@pytest.mark.parametrize(
    ("arriving", "delivered"),
    [
        ([1, 2, 3], [[1], [2], [3]]),
        ([1, 3, 2, 4], [[1], [], [2, 3], [4]]),
        ([1, 3, 4, 5, 6], [[1], [], [], [3, 4, 5], [6]]),
        ([1, 3, 4, 5, 2, 6], [[1], [], [], [3, 4, 5], [], [6]]),
        ([1, 3, 5, 7, 8], [[1], [], [], [3], [5]]),
        ([1, 1, 2, 2], [[1], [], [2], []]),
        ([65_534, 65_535, 0, 1], [[65_534], [65_535], [0], [1]]),
        ([65_534, 0, 65_535, 1], [[65_534], [], [65_535, 0], [1]]),
        ([10, 20_000, 20_001], [[10], [20_000], [20_001]]),
        ([20_000, 10, 11], [[20_000], [10], [11]]),
    ],
)
def test_packets_come_in_order_at_once_or_after_three_others(
    arriving: list[int], delivered: list[list[int]]
) -> None:
    assert through(arriving) == delivered


def test_only_lost_packets_are_lost() -> None:
    dice = random.Random(7)
    arriving = [x for x in range(60_000, 70_000) if x == 60_000 or dice.random() > 0.05]
    delivered = [x for out in through([x & 0xFFFF for x in arriving]) for x in out]
    assert delivered == [x & 0xFFFF for x in arriving][: len(delivered)]
    assert len(arriving) - len(delivered) < PATIENCE


def test_packets_swapped_within_the_wait_are_all_delivered() -> None:
    dice = random.Random(7)
    arriving = sorted(range(1000), key=lambda x: x + dice.random() * 2)
    arriving.remove(0)
    delivered = [x for out in through([0, *arriving]) for x in out]
    assert delivered == list(range(1000))


def test_another_version_of_aiortc_keeps_its_buffer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jitter.aiortc, "__version__", "9.9.9")
    receiver = object()
    with caplog.at_level(logging.WARNING):
        assert adopt(receiver, lambda *_: None) is False
    assert "9.9.9" in caplog.text
