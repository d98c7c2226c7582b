"""Servers of the Responses API, good and bad, over real sockets."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pytest

from tests.units.engines.fake_llm_server import Behaviour, Body, Exchange, failing, serving
from units.engines.base import EngineError, EngineSettings
from units.engines.responses import Responses, input_items
from units.messages import Finish, Generate, Image, Message, Token, Tool, ToolCall, ToolResult
from units.scope import CancelScope, entered

HI = Generate(history=(Message("user", "hi"),), instructions="be kind")
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 9,
}


def stream(*events: Body) -> Behaviour:
    def answer(exchange: Exchange) -> None:
        exchange.begin()
        for number, event in enumerate(events):
            exchange.event({"sequence_number": number, **event}, name=event["type"])
        exchange.end()

    return answer


def text(delta: str) -> Body:
    place = {"item_id": "m", "output_index": 0, "content_index": 0, "logprobs": []}
    return {"type": "response.output_text.delta", "delta": delta, **place}


def called(arguments: str, status: str = "completed") -> Body:
    item = {
        "type": "function_call",
        "id": "i",
        "call_id": "c",
        "name": "f",
        "arguments": arguments,
        "status": status,
    }
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def ended(status: str = "completed", **more: Any) -> Body:
    return {"type": f"response.{status}", "response": {"id": "r", "output": [], "status": status, **more}}


def answers(behaviour: Behaviour, request: Generate = HI) -> list[Token | ToolCall | Finish]:
    with serving(behaviour) as server, closing(engine(server.url)) as llm:
        return list(llm.generate(request))


def engine(url: str) -> Responses:
    return Responses(EngineSettings("responses", "m", url, "sk-secret"))


@pytest.mark.parametrize(
    ("events", "answer"),
    [
        pytest.param(
            [text("Hel"), text("lo."), ended(usage=USAGE)],
            [Token("Hel"), Token("lo."), Finish("stop", 7, 2, 3)],
            id="text",
        ),
        pytest.param([called('{"x": 1}'), ended()], [ToolCall("c", "f", '{"x": 1}'), Finish()], id="a call"),
        pytest.param(
            [text("H"), ended("incomplete", incomplete_details={"reason": "max_output_tokens"})],
            [Token("H"), Finish("length")],
            id="token limit",
        ),
        pytest.param(
            [ended("incomplete", incomplete_details={"reason": "content_filter"})],
            [Finish("content_filter")],
            id="filtered",
        ),
        pytest.param(
            [
                called('{"x', "incomplete"),
                ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
            ],
            [Finish("length")],
            id="a call cut off",
        ),
        pytest.param(
            [{"type": "response.reasoning_text.delta", "delta": "hm"}, ended()], [Finish()], id="reasoning"
        ),
    ],
)
def test_the_events_become_an_answer(events: list[Body], answer: list[object]) -> None:
    assert answers(stream(*events)) == answer


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        pytest.param(
            stream(ended("failed", error={"code": "x", "message": "too\nbusy"})),
            "failed: too busy",
            id="failed",
        ),
        pytest.param(
            stream({"type": "error", "message": "overloaded", "code": None, "param": None}),
            "overloaded",
            id="error",
        ),
        pytest.param(stream(text("H")), "before it was complete", id="cut short"),
        pytest.param(stream(), "before it was complete", id="empty"),
        pytest.param(failing(401), "refused the API key", id="401"),
        pytest.param(failing(429), "no capacity", id="429"),
    ],
)
def test_a_failing_server_is_one_clear_sentence(behaviour: Behaviour, sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence):
        answers(behaviour)


def test_cancelling_wakes_a_blocked_read() -> None:
    def stalling(exchange: Exchange) -> None:
        exchange.begin()
        exchange.event(text("Hel"))
        exchange.wait_for_the_client_to_leave()

    scope = CancelScope("response")
    got: list[object] = []
    with serving(stalling) as server, closing(engine(server.url)) as llm:

        def run() -> None:
            with entered(scope):
                got.extend(llm.generate(HI))

        thread = threading.Thread(target=run)
        thread.start()
        assert server.stalled.wait(5)
        scope.cancel()
        thread.join(5)
        assert not thread.is_alive()
    assert got in ([], [Token("Hel")])


def test_the_history_becomes_input_items() -> None:
    history = (
        Message("user", "look", (Image("https://x/y.png", "high"),)),
        Message("assistant", "wait"),
        ToolCall("1", "f", "{}"),
        ToolResult("1", "ok"),
    )
    assert input_items(Generate(history=history, instructions="be kind")) == [
        {"role": "system", "content": "be kind"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "https://x/y.png", "detail": "high"},
            ],
        },
        {"role": "assistant", "content": "wait"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "ok"},
    ]


def test_the_request_carries_tools_and_limits_and_stores_nothing() -> None:
    request = Generate(history=HI.history, tools=(Tool("f"),), tool_choice="f", max_output_tokens=20)
    with serving(stream(ended())) as server, closing(engine(server.url)) as llm:
        list(llm.generate(request))
        [body] = server.posts
    assert body["tools"][0]["name"] == "f"
    assert body["tool_choice"] == {"type": "function", "name": "f"}
    assert body["max_output_tokens"] == 20
    assert body["store"] is False
