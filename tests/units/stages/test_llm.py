from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.units.odd_engines import GatedLLM
from units.engines.base import EngineError
from units.messages import Begin, Finish, Generate, Prepare, Say, Token, ToolCall, Voice
from units.stages.llm import answer

VOICE = Voice("tone")
REQUEST = Generate(voice=VOICE)


class Saying:
    def __init__(self, *pieces: Token | ToolCall | Finish) -> None:
        self.pieces = pieces

    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        return iter(self.pieces)


def test_an_answer_is_opened_by_begin_and_closed_by_finish() -> None:
    finish = Finish("length", 1, 2)
    engine = Saying(Token("a"), finish)
    assert [*answer([REQUEST], engine)] == [Begin(VOICE), Token("a"), finish]


def test_a_finish_that_the_engine_forgot_is_added() -> None:
    assert [*answer([REQUEST], Saying(Token("a")))] == [Begin(VOICE), Token("a"), Finish()]


def test_what_is_to_be_said_is_not_asked_of_the_model() -> None:
    assert [*answer([Say("Sorry.", VOICE)], Saying())] == [Begin(VOICE), Token("Sorry."), Finish()]


def test_closing_the_stage_closes_the_engines_iterator() -> None:
    engine = GatedLLM("Well, ")
    stage = answer([REQUEST], engine)
    assert [next(stage), next(stage)] == [Begin(VOICE), Token("Well, ")]
    stage.close()  # type: ignore[attr-defined]
    assert engine.closed == 1


class Reading(Saying):
    """Reads prompts ahead."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__(Token("yes"))
        self.fails = fails
        self.read: list[Generate] = []

    def prepare(self, request: Generate) -> None:
        self.read.append(request)
        if self.fails:
            raise EngineError("busy")


def test_a_model_that_can_read_ahead_is_given_the_prompt_and_says_nothing() -> None:
    model = Reading()
    assert [*answer([Prepare(REQUEST)], model)] == []
    assert model.read == [REQUEST]


def test_failing_to_read_ahead_costs_nothing() -> None:
    assert [*answer([Prepare(REQUEST), REQUEST], Reading(fails=True))][1:] == [Token("yes"), Finish()]


def test_a_model_that_cannot_read_ahead_is_left_alone() -> None:
    assert [*answer([Prepare(REQUEST)], Saying(Token("never")))] == []


def test_calls_after_the_first_are_dropped_when_only_one_is_wanted() -> None:
    calls = [ToolCall(id, "f", "{}") for id in ("a", "b")]
    engine = Saying(Token("Well."), *calls, Finish("stop", 1, 2))
    assert [*answer([REQUEST], engine)][2:-1] == calls
    alone = [*answer([replace(REQUEST, parallel_tool_calls=False)], engine)]
    assert alone == [Begin(VOICE), Token("Well."), calls[0], Finish("stop", 1, 2)]
