from __future__ import annotations

import pytest

from units.scope import CancelScope, current_scope, entered


def test_a_scope_is_cancelled_for_good() -> None:
    scope = CancelScope("work")
    assert not scope.cancelled
    scope.cancel()
    scope.cancel()
    assert scope.cancelled


def test_a_child_is_cancelled_with_its_parent_and_not_the_other_way_round() -> None:
    parent = CancelScope("session")
    child, other = CancelScope("response", parent), CancelScope("other", parent)
    child.cancel()
    assert (child.cancelled, parent.cancelled, other.cancelled) == (True, False, False)
    parent.cancel()
    assert other.cancelled


def test_a_child_of_a_cancelled_parent_is_born_cancelled() -> None:
    parent = CancelScope("session")
    parent.cancel()
    assert CancelScope("response", parent).cancelled


def test_callbacks_run_once_or_at_once() -> None:
    calls: list[str] = []
    scope = CancelScope("work")
    scope.on_cancel(lambda: calls.append("before"))
    scope.cancel()
    scope.cancel()
    scope.on_cancel(lambda: calls.append("after"))
    assert calls == ["before", "after"]


def test_forgotten_callbacks_do_not_run() -> None:
    calls: list[str] = []
    scope = CancelScope("work")
    callback = calls.clear
    scope.on_cancel(callback)
    scope.forget(callback)
    scope.forget(callback)
    calls.append("kept")
    scope.cancel()
    assert calls == ["kept"]


def test_a_callback_that_fails_does_not_keep_others_from_running(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    scope = CancelScope("work")
    scope.on_cancel(lambda: 1 / 0)
    scope.on_cancel(lambda: calls.append("ran"))
    scope.cancel()
    assert calls == ["ran"]
    assert "on_cancel callback" in caplog.text


def test_a_finished_child_leaves_nothing_behind_in_its_parent() -> None:
    parent = CancelScope("session")
    for _ in range(10):
        CancelScope("response", parent).cancel()
    assert not parent._callbacks


def test_the_ambient_scope_is_that_of_the_block_and_else_one_that_nobody_cancels() -> None:
    scope = CancelScope("work")
    with entered(scope):
        assert current_scope() is scope
    assert current_scope() is not scope
    assert not current_scope().cancelled
