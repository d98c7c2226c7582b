"""Where sound belongs on the line of time."""

from __future__ import annotations

import numpy as np
import pytest

from server.records.tracks import RATE, Track
from units.messages import Int16

STEP = RATE // 50


def sound(n: int = STEP, level: int = 1000) -> Int16:
    return np.full(n, level, np.int16)


def spans(track: Track, n: int) -> list[tuple[int, int]]:
    """Where there is sound in the first ``n`` samples: beginning and end of each stretch."""
    loud = np.concatenate([[0], track.take(n) != 0, [0]]).astype(int)
    return list(
        zip(
            np.flatnonzero(np.diff(loud) == 1).tolist(),
            np.flatnonzero(np.diff(loud) == -1).tolist(),
            strict=True,
        )
    )


def test_what_arrives_was_said_just_before() -> None:
    track = Track()
    track.arrived(sound(), RATE)
    assert spans(track, 2 * RATE) == [(RATE - STEP, RATE)]


def test_what_arrives_unevenly_is_one_piece() -> None:
    track = Track()
    for n, jitter in enumerate((0, 900, 100, 2400, 50)):
        track.arrived(sound(), RATE + n * STEP + jitter)
    assert spans(track, 2 * RATE) == [(RATE - STEP, RATE + 4 * STEP)]


def test_a_gap_stays_a_gap() -> None:
    track = Track()
    track.arrived(sound(), RATE)
    track.arrived(sound(), 2 * RATE)
    assert spans(track, 3 * RATE) == [(RATE - STEP, RATE), (2 * RATE - STEP, 2 * RATE)]


def test_what_has_piled_up_is_caught_up_with_in_the_next_long_silence() -> None:
    track = Track()
    now = RATE
    track.arrived(sound(), now)
    now += RATE  # the network stood still, then all of it comes at once
    for _ in range(50):
        track.arrived(sound(), now)
    for _ in range(100):
        now += STEP
        track.arrived(sound(level=0), now)
    now += STEP
    track.arrived(sound(), now)
    (*_, last) = spans(track, 8 * RATE)
    assert now - RATE // 20 <= last[1] <= now + RATE // 20


def test_short_pauses_in_a_burst_are_kept() -> None:
    track = Track()
    for level in [1000] * 10 + [0] * 10 + [1000] * 10:
        track.arrived(sound(level=level), RATE)
    (first, second) = spans(track, 3 * RATE)
    assert second[0] - first[1] == 10 * STEP


@pytest.mark.parametrize("speed", [0.999, 1.001])
def test_a_clock_that_differs_does_not_run_away(speed: float) -> None:
    track = Track()
    for n in range(50 * 60):
        spoken = n % 250 < 200
        track.arrived(sound(level=1000 if spoken else 0), round(n * STEP * speed))
        assert abs(round(n * STEP * speed) - track.end) < RATE // 5


def test_silence_of_a_sender_that_is_faster_than_the_clock_is_kept() -> None:
    track = Track()
    for n in range(100):
        track.arrived(sound(RATE // 10, 1000 if n // 20 % 2 else 0), n * RATE // 200)
    assert abs(track.end - 10 * RATE) < RATE // 20


def test_what_is_played_begins_now_and_late_frames_follow_each_other() -> None:
    track = Track()
    for n, late in enumerate((0, 0, 7000, 6600, 6200)):
        track.began(sound(), RATE + n * STEP + late)
    assert spans(track, 2 * RATE) == [(RATE, RATE + 5 * STEP)]


def test_what_is_queued_follows_what_is_queued() -> None:
    track = Track()
    track.queued(sound(RATE), RATE, "a")
    track.queued(sound(RATE), RATE + 10, "a")
    track.queued(sound(RATE), 5 * RATE, "b")
    assert spans(track, 7 * RATE) == [(RATE, 3 * RATE), (5 * RATE, 6 * RATE)]


def test_what_is_stopped_is_cut_now() -> None:
    track = Track()
    track.queued(sound(4 * RATE), RATE, "a")
    track.stop(2 * RATE)
    track.queued(sound(RATE), 3 * RATE, "b")
    assert spans(track, 7 * RATE) == [(RATE, 2 * RATE), (3 * RATE, 4 * RATE)]


def test_an_item_is_shortened_and_no_other() -> None:
    track = Track()
    track.queued(sound(2 * RATE), 0, "a")
    track.queued(sound(2 * RATE), RATE, "b")
    track.shorten("a", RATE // 2)
    track.shorten("unknown", 0)
    assert spans(track, 7 * RATE) == [(0, RATE // 2), (2 * RATE, 4 * RATE)]


def test_it_can_be_taken_in_any_pieces() -> None:
    rng = np.random.default_rng(1)
    whole, parts = Track(), Track()
    for track in (whole, parts):
        track.queued(np.arange(1, 5001, dtype=np.int16), 777, "a")
    taken = []
    while sum(map(len, taken)) < 7000:
        taken.append(parts.take(int(rng.integers(1, 900))))
    assert np.array_equal(np.concatenate(taken)[:7000], whole.take(7000))


def test_what_is_too_far_ahead_is_left_out() -> None:
    track = Track()
    for _ in range(700):
        track.queued(sound(RATE), 0, "a")
        assert not track.overfull or track.end == 600 * RATE
    assert track.overfull
    assert track.end == 600 * RATE


def test_what_was_written_stays() -> None:
    track = Track()
    track.queued(sound(2 * RATE), 0, "a")
    track.take(RATE)
    track.stop(RATE // 2)
    assert track.end == RATE
    track.queued(sound(10), RATE // 2, "b")
    assert np.count_nonzero(track.take(RATE)) == 10


def test_a_first_packet_that_was_held_up_holds_up_nothing_else() -> None:
    track = Track()
    track.arrived(sound(level=0), RATE)
    for n in range(1, 20):
        track.arrived(sound(level=0), max(RATE, RATE - 8 * STEP + n * STEP))
    now = RATE - 8 * STEP + 20 * STEP
    track.arrived(sound(), now)
    assert track.end <= now + RATE // 20
