from __future__ import annotations

import numpy as np
import pytest

from units.messages import Audio
from units.playout import AssumedPlayout, Heard, Playout

RATE = 1_000
"""One sample a millisecond."""


def audio(ms: int, text: str = "", value: int = 1) -> Audio:
    return Audio(np.full(ms, value, np.int16), RATE, text)


class Told(Playout):
    """Writes down what it tells."""

    def __init__(self) -> None:
        super().__init__(RATE)
        self.told: list[object] = []
        self.on_started = self.told.append
        self.on_stopped = self.told.append


def test_silence_is_none() -> None:
    playout = Playout(RATE)
    assert playout.pull(20) is None
    assert not playout.playing


def test_frames_come_in_the_order_they_were_written() -> None:
    playout = Playout(RATE)
    playout.write("a", audio(15, "One ", 1))
    playout.write("a", audio(15, "two.", 2))
    frames = [playout.pull(10) for _ in range(3)]
    assert [frame.tolist() for frame in frames if frame is not None] == [
        [1] * 10,
        [1] * 5 + [2] * 5,
        [2] * 10,
    ]


def test_a_short_tail_is_padded_with_zeros() -> None:
    playout = Playout(RATE)
    playout.write("a", audio(5, "Hi"))
    frame = playout.pull(8)
    assert frame is not None
    assert frame.tolist() == [1] * 5 + [0] * 3
    assert frame.dtype == np.int16


def test_speech_of_another_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="16000 Hz in a playout at 1000 Hz"):
        Playout(RATE).write("a", Audio(np.ones(1, np.int16), 16_000))


def test_each_tag_starts_and_stops_once_and_in_sequence() -> None:
    playout = Told()
    playout.write("a", audio(10, "One."))
    playout.finish("a")
    playout.write("b", audio(10, "Two."))
    playout.pull(15)
    playout.pull(15)
    playout.finish("b")
    assert playout.told == ["a", Heard("a", 10, "One."), "b", Heard("b", 10, "Two.")]
    assert not playout.playing


def test_a_tag_is_not_cut_in_two_by_another() -> None:
    playout = Told()
    playout.write("a", audio(10, "One."))
    playout.write("b", audio(10, "Two."))
    playout.finish("b")
    playout.write("a", audio(10, " Sorry."))
    playout.finish("a")
    playout.pull(30)
    assert playout.told == ["a", Heard("a", 20, "One. Sorry."), "b", Heard("b", 10, "Two.")]


def test_it_waits_for_the_rest_of_a_tag_that_is_not_finished() -> None:
    playout = Told()
    playout.write("a", audio(10, "One."))
    playout.pull(20)
    assert playout.playing
    assert playout.pull(20) is None
    playout.write("a", audio(10, " Two."))
    playout.pull(20)
    playout.finish("a")
    assert playout.told == ["a", Heard("a", 20, "One. Two.")]


def test_a_tag_that_is_finished_before_it_was_heard_stops_with_its_last_sample() -> None:
    playout = Told()
    playout.write("a", audio(10, "One."))
    playout.finish("a")
    assert playout.told == []
    playout.pull(10)
    assert playout.told == ["a", Heard("a", 10, "One.")]


HEARD = [
    (0, ""),
    (5, ""),
    (10, "One"),
    (20, "One two"),
    (39, "One two three."),
    (40, "One two three. "),
    (50, "One two three. "),
    (60, "One two three. Four"),
    (80, "One two three. Four five six."),
]


@pytest.mark.parametrize(("ms", "text"), HEARD)
def test_what_was_heard_is_cut_at_a_word(ms: int, text: str) -> None:
    playout = Playout(RATE)
    playout.write("a", audio(20, "One two three. "))
    playout.write("a", audio(20))
    playout.write("a", audio(40, "Four five six."))
    playout.finish("a")
    playout.write("b", audio(10, "More."))
    if ms:
        playout.pull(ms)
    heard = playout.flush()
    if ms < 80:
        assert heard.pop(0) == Heard("a", ms, text)
    assert heard == [Heard("b", 0, "")]


def test_a_sentence_whose_sound_is_still_being_made_does_not_count_as_heard() -> None:
    playout = Playout(RATE)
    playout.write("a", audio(100, "This sentence takes much longer than its first piece of sound."))
    playout.pull(100)
    heard = playout.flush()[0].text
    assert "This sentence takes".startswith(heard)
    assert heard != "This sentence takes much longer than its first piece of sound."


def test_nothing_is_played_or_told_after_a_flush() -> None:
    playout = Told()
    playout.write("a", audio(30, "One."))
    playout.pull(10)
    playout.flush()
    playout.finish("a")
    assert playout.pull(10) is None
    assert playout.told == ["a"]
    assert playout.flush() == []


def test_what_is_written_after_a_flush_is_played() -> None:
    playout = Playout(RATE)
    playout.write("a", audio(30, "One.", 1))
    playout.flush()
    playout.write("b", audio(30, "Two.", 2))
    frame = playout.pull(10)
    assert frame is not None
    assert set(frame.tolist()) == {2}


def test_waiting_counts_what_was_not_pulled() -> None:
    playout = Playout(RATE)
    playout.write("a", audio(30, "One."))
    playout.pull(10)
    assert playout.waiting == 20


def test_text_without_sound_is_heard_with_what_follows() -> None:
    playout = Told()
    playout.write("a", audio(10, "One. "))
    playout.write("a", audio(0, "... "))
    playout.finish("a")
    playout.pull(10)
    assert playout.told[-1] == Heard("a", 10, "One. ")


def test_a_client_that_plays_the_sound_itself_plays_one_item_after_the_other() -> None:
    assumed = AssumedPlayout()
    for _ in range(4):
        assumed.queued("a", 0.5, 10.0)
    assumed.queued("b", 1.0, 10.5)
    assert assumed.heard(10.5) == {"a": 0.5, "b": 0.0}
    assert assumed.heard(12.5) == {"a": 2.5, "b": 0.5}
    assumed.stop(11.0)
    assumed.queued("c", 1.0, 11.0)
    assert assumed.heard(11.25)["c"] == 0.25


def test_all_that_is_pulled_is_told_silence_too() -> None:
    playout, pulled = Playout(24_000), []
    playout.on_pulled = pulled.append
    playout.write("a", Audio(np.ones(700, np.int16), 24_000))
    for _ in range(3):
        playout.pull(480)
    assert [(len(frame), int(frame.sum())) for frame in pulled] == [(480, 480), (480, 220), (480, 0)]
