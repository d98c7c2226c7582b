from __future__ import annotations

import pytest

from server.callers import Caller, Quotas
from server.doors import Refusal


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(clock: Clock) -> Quotas:
    return Quotas(clock)


def refusal(caller: Caller) -> Refusal:
    with pytest.raises(Refusal) as caught:
        caller.begin()
    assert caught.value.status == 429
    return caught.value


def test_a_session_that_never_began_does_not_count(quotas: Quotas) -> None:
    caller = Caller(counted="a", per_minute=1, quotas=quotas)
    for _ in range(3):
        caller.begin()()
        caller.take_back()
    Caller(counted="b", per_minute=1, quotas=quotas).begin()
    caller.begin()
    assert refusal(caller).code == "rate_limit_exceeded"


def test_a_session_that_has_ended_makes_room_for_another(quotas: Quotas) -> None:
    caller = Caller(counted="a", sessions=2, quotas=quotas)
    ended = caller.begin()
    caller.begin()
    assert refusal(caller).code == "too_many_sessions"
    ended()
    ended()
    caller.begin()
    refusal(caller)


def test_a_minute_has_only_so_many_sessions(quotas: Quotas, clock: Clock) -> None:
    caller = Caller(counted="a", per_minute=2, quotas=quotas)
    caller.begin()()
    clock.now += 20
    caller.begin()()
    clock.now += 10
    refused = refusal(caller)
    assert (refused.code, refused.response().headers["Retry-After"]) == ("rate_limit_exceeded", "30")
    clock.now += 30
    caller.begin()
    refusal(caller)


def test_callers_do_not_count_for_each_other(quotas: Quotas) -> None:
    Caller(counted="a", sessions=1, per_minute=1, quotas=quotas).begin()
    Caller(counted="b", sessions=1, per_minute=1, quotas=quotas).begin()


def test_nothing_is_kept_of_callers_who_are_gone(quotas: Quotas, clock: Clock) -> None:
    for number in range(100):
        Caller(counted=str(number), quotas=quotas).begin()()
    clock.now += 61
    Caller(counted="last", quotas=quotas).begin()()
    assert (len(quotas._open), len(quotas._recent), len(quotas._begun)) == (0, 1, 1)
