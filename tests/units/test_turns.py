from __future__ import annotations

from functools import partial

import pytest

from units.turns import SpeculativeTurnTracker, TurnState


@pytest.fixture
def turns() -> SpeculativeTurnTracker:
    return SpeculativeTurnTracker()


def test_a_turn_goes_from_speaking_over_grace_to_committed(turns: SpeculativeTurnTracker) -> None:
    turn = turns.started(1, "item")
    states = [turn.state]
    for step in (partial(turns.paused, 1, 1), partial(turns.resumed, 1), partial(turns.paused, 1, 2)):
        step()
        states.append(turn.state)
    assert states == [TurnState.SPEAKING, TurnState.GRACE, TurnState.SPEAKING, TurnState.GRACE]
    turns.ended(1)
    assert turn.committed


def test_words_of_an_earlier_revision_are_not_the_turns(turns: SpeculativeTurnTracker) -> None:
    turns.started(1, "item")
    turns.paused(1, 1)
    turns.resumed(1)
    turns.paused(1, 2)
    assert turns.transcribed(1, 1, "old") is None
    turn = turns.transcribed(1, 2, "new")
    assert turn is not None
    assert turn.text == "new"


def test_words_that_come_while_the_caller_speaks_on_are_not_the_turns(turns: SpeculativeTurnTracker) -> None:
    turns.started(1, "item")
    turns.paused(1, 1)
    turns.resumed(1)
    assert turns.transcribed(1, 1, "old") is None


def test_a_turn_with_words_is_forgotten_when_it_ends(turns: SpeculativeTurnTracker) -> None:
    turns.started(1, "item")
    turns.paused(1, 1)
    turns.transcribed(1, 1, "hello")
    turns.ended(1)
    assert not turns.speaking
    assert not turns.unheard
    assert turns.known(1) is None


def test_a_turn_without_words_is_kept_until_they_come(turns: SpeculativeTurnTracker) -> None:
    turns.started(1, "item")
    turns.paused(1, 1)
    turns.ended(1)
    assert turns.unheard
    turns.transcribed(1, 1, "hello")
    assert not turns.unheard


def test_the_next_turn_may_begin_before_the_words_of_the_last_came(turns: SpeculativeTurnTracker) -> None:
    turns.started(1, "one")
    turns.paused(1, 1)
    turns.ended(1)
    turns.started(2, "two")
    assert turns.speaking
    turn = turns.transcribed(1, 1, "hello")
    assert turn is not None
    assert turn.item_id == "one"


def test_a_manual_commit_needs_no_speech(turns: SpeculativeTurnTracker) -> None:
    turn = turns.committed(1, "item", 1)
    assert turn.committed
    assert turn.manual
    assert turns.unheard


def test_a_manual_commit_takes_over_the_turn_that_is_spoken(turns: SpeculativeTurnTracker) -> None:
    turn = turns.started(1, "item")
    assert turns.committed(1, "other", 1) is turn
    assert turn.item_id == "item"
    assert not turns.speaking


def test_what_is_said_about_a_dropped_turn_is_without_effect(turns: SpeculativeTurnTracker) -> None:
    turns.started(1, "item")
    turns.clear()
    turns.paused(1, 1)
    turns.resumed(1)
    assert turns.ended(1) is None
    assert turns.transcribed(1, 1, "hello") is None
    assert not turns.speaking


def test_a_turn_that_begins_ends_the_wait_for_one_that_was_dropped(turns: SpeculativeTurnTracker) -> None:
    turns.started(1, "dropped by the ears alone")
    turns.started(2, "item")
    turns.paused(2, 1)
    turns.transcribed(2, 1, "hello")
    turns.ended(2)
    assert not turns.speaking


def test_an_event_that_a_state_does_not_know_is_refused(turns: SpeculativeTurnTracker) -> None:
    turn = turns.started(1, "item")
    with pytest.raises(KeyError):
        turn.move("resume")
