"""Chat servers, good and bad, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from tests.units.engines.fake_llm_server import (
    HELLO,
    Behaviour,
    Exchange,
    chat,
    chunk,
    failing,
    serving,
)
from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.engines.chat import UNSEEN
from units.engines.chat_completions import ChatCompletions
from units.engines.openai_stream import Patience
from units.messages import Finish, Generate, Image, Message, Token, Tool, ToolCall, ToolResult
from units.scope import CancelScope, entered

KEY = "sk-secret-1234"
HI = Generate(history=(Message("user", "hi"),), instructions="be kind")
WEATHER = Tool("get_weather", "Weather", '{"type": "object", "properties": {"city": {"type": "string"}}}')
SHORT = Patience(connect=1.0, first=0.2, between=0.2)


def engine(url: str, model: str = "m", patience: Patience | None = None) -> ChatCompletions:
    return ChatCompletions(EngineSettings("chat-completions", model, url, KEY), patience)


def answers(behaviour: Behaviour, request: Generate = HI, **more: Any) -> list[Token | ToolCall | Finish]:
    with serving(behaviour) as server, closing(engine(server.url, **more)) as llm:
        return list(llm.generate(request))


def failure(*behaviours: Behaviour, patience: Patience | None = None) -> str:
    with serving(*behaviours) as server, closing(engine(server.url, patience=patience)) as llm:
        with pytest.raises(EngineError) as caught:
            list(llm.generate(HI))
        assert KEY not in str(caught.value)
        return str(caught.value)


def tool_delta(
    index: int, call_id: str | None = None, name: str | None = None, arguments: str = ""
) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return chunk(
        {"tool_calls": [{"index": index, **({"id": call_id} if call_id else {}), "function": function}]}
    )


def test_text_streams_and_usage_is_counted() -> None:
    assert answers(HELLO) == [Token("Hel"), Token("lo."), Finish("stop", 7, 2, 3)]


def test_the_request_carries_what_the_model_may_see() -> None:
    call = ToolCall("1", "get_weather", "{}")
    request = Generate(
        history=(Message("user", "hi"), call, ToolResult("1", "sun")),
        instructions="be kind",
        tools=(WEATHER,),
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=5,
    )
    with serving(HELLO) as server, closing(engine(server.url)) as llm:
        list(llm.generate(request))
        [body] = server.posts
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool"]
    assert body["tools"][0]["function"]["name"] == "get_weather"
    assert body["tool_choice"] == "required"
    assert body["parallel_tool_calls"] is False
    assert body["max_tokens"] == 5
    assert body["stream_options"] == {"include_usage": True}
    assert server.keys == [f"Bearer {KEY}"]


def test_without_tools_nothing_is_said_of_them() -> None:
    with serving(HELLO) as server, closing(engine(server.url)) as llm:
        list(llm.generate(HI))
        assert {"tools", "tool_choice", "max_tokens", "parallel_tool_calls"}.isdisjoint(server.posts[0])


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [tool_delta(0, "a", "f"), tool_delta(0, arguments='{"x":'), tool_delta(0, arguments=" 1}")],
            [ToolCall("a", "f", '{"x": 1}')],
            id="in pieces",
        ),
        pytest.param(
            [tool_delta(0, "a", "f", "{}"), tool_delta(1, "b", "g", "{}")],
            [ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")],
            id="two calls",
        ),
        pytest.param(
            [tool_delta(0, "a", "f", "{}"), tool_delta(0, "b", "g", "{}")],
            [ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")],
            id="two calls of one index",
        ),
        pytest.param([tool_delta(0, "a", "f")], [ToolCall("a", "f", "{}")], id="without arguments"),
    ],
)
def test_tool_calls_are_put_together(deltas: list[dict[str, Any]], calls: list[ToolCall]) -> None:
    assert answers(chat(*deltas, chunk({}, "tool_calls")))[:-1] == calls


def test_arguments_that_are_no_object_fail_the_response() -> None:
    assert "not a JSON object" in failure(chat(tool_delta(0, "a", "f", "{oops"), chunk({}, "tool_calls")))


def test_a_call_that_the_token_limit_cut_is_dropped() -> None:
    answer = answers(chat(tool_delta(0, "a", "f", '{"x'), chunk({}, "length")))
    assert [type(item) for item in answer] == [Finish]


def test_a_call_written_as_text_is_a_call_when_tools_were_given() -> None:
    written = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    request = Generate(history=HI.history, tools=(WEATHER,))
    [call, _] = answers(chat(chunk({"content": written}), chunk({}, "stop")), request)
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == {"city": "Oslo"}


def test_reasoning_apart_from_the_text_is_left_out() -> None:
    answer = answers(chat(chunk({"reasoning_content": "hm"}), chunk({"content": "Yes"}), chunk({}, "stop")))
    assert answer == [Token("Yes"), Finish("stop", output_tokens=1)]


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("odd", "stop"),
    ],
)
def test_the_finish_reason_is_told(wire: str, reason: str) -> None:
    finish = answers(chat(chunk({"content": "x"}, wire)))[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == reason


def test_a_model_may_have_nothing_to_say() -> None:
    assert answers(chat(chunk({}, "stop"))) == [Finish("stop")]


def test_the_first_model_listed_is_used_when_none_is_named() -> None:
    with serving(HELLO) as server, closing(engine(server.url, model="")) as llm:
        list(llm.generate(HI))
        list(llm.generate(HI))
        assert [body["model"] for body in server.posts] == ["first-model"] * 2
        assert [path for path, _ in server.requests].count("/v1/models") == 1


def test_a_server_without_models_is_unavailable() -> None:
    with serving(HELLO) as server, closing(engine(server.url, model="")) as llm:
        server.models.clear()
        with pytest.raises(EngineUnavailable, match="lists no models"):
            list(llm.generate(HI))


def test_a_server_that_refuses_usage_is_asked_without_and_remembered() -> None:
    def picky(exchange: Exchange) -> None:
        if "stream_options" in exchange.body:
            failing(400, "Unknown field: stream_options")(exchange)
        else:
            chat(chunk({"content": "Hi"}), chunk({}, "stop"))(exchange)

    with serving(picky) as server, closing(engine(server.url)) as llm:
        assert list(llm.generate(HI)) == [Token("Hi"), Finish("stop", output_tokens=1)]
        list(llm.generate(HI))
        assert len(server.posts) == 3


LOOK = Generate(history=(Message("user", "look", (Image("data:image/png;base64,AA=="),)),))


@pytest.mark.parametrize(
    "refusal", [failing(400, "m is not a multimodal model"), failing(500, "image input is not supported")]
)
def test_a_server_that_refuses_images_is_told_of_them_in_words_and_remembered(refusal: Behaviour) -> None:
    def text_only(exchange: Exchange) -> None:
        (refusal if "image_url" in json.dumps(exchange.body) else HELLO)(exchange)

    with serving(text_only) as server, closing(engine(server.url)) as llm:
        assert list(llm.generate(LOOK))[:-1] == [Token("Hel"), Token("lo.")]
        asked = len(server.posts)
        list(llm.generate(LOOK))
        assert len(server.posts) == asked + 1
        assert server.posts[-1]["messages"] == [{"role": "user", "content": f"look\n{UNSEEN}"}]


def test_a_server_that_fails_for_other_reasons_is_shown_images_again() -> None:
    with serving(failing(429), HELLO) as server, closing(engine(server.url)) as llm:
        with pytest.raises(EngineError):
            list(llm.generate(LOOK))
        list(llm.generate(LOOK))
        assert "image_url" in json.dumps(server.posts[-1])


def broken(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event(chunk({"content": "Hel"}))
    exchange.reset()


def hanging_up_after(*chunks: dict[str, Any]) -> Behaviour:
    """A server that dies mid-answer, where the end of the connection is the end of the body."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_unframed()
        for each in chunks:
            exchange.wfile.write(f"data: {json.dumps(each)}\n\n".encode())
        exchange.close_connection = True

    return answer


@pytest.mark.parametrize(
    ("chunks", "before"),
    [
        pytest.param([chunk({"content": "Hel"})], [Token("Hel")], id="text"),
        pytest.param([tool_delta(0, "a", "f", '{"x": ')], [], id="a call cut short"),
        pytest.param([tool_delta(0, "a", "f", "{}")], [], id="a call that may be whole"),
    ],
)
def test_an_answer_without_a_finish_reason_was_broken_off(
    chunks: list[dict[str, Any]], before: list[Token]
) -> None:
    got: list[object] = []
    with serving(hanging_up_after(*chunks)) as server, closing(engine(server.url)) as llm:
        answer = llm.generate(HI)
        with pytest.raises(EngineError, match="The language model server broke off its answer"):
            got.extend(answer)
    assert got == before


def test_an_answer_with_a_finish_reason_is_whole_however_the_connection_ends() -> None:
    answer = answers(hanging_up_after(chunk({"content": "Hi"}), chunk({}, "stop")))
    assert answer == [Token("Hi"), Finish("stop", output_tokens=1)]


def stalling(exchange: Exchange) -> None:
    exchange.begin()
    exchange.wait_for_the_client_to_leave()


def pausing(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event(chunk({"content": "Hel"}))
    exchange.raw(": still here\n\n")
    exchange.wait_for_the_client_to_leave()


def error_event(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event({"error": {"message": f"overloaded, {KEY}"}})
    exchange.end()


def garbage(exchange: Exchange) -> None:
    exchange.begin()
    exchange.event("{not json")
    exchange.end()


def page(exchange: Exchange) -> None:
    exchange.whole(200, "<html>Log in</html>", "text/html; charset=utf-8")


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        pytest.param(failing(429), "no capacity or quota left", id="429"),
        pytest.param(failing(401, f"Incorrect API key: {KEY}"), "refused the API key (401)", id="401"),
        pytest.param(failing(403), "refused the API key (403)", id="403"),
        pytest.param(failing(404), "does not know this model", id="404"),
        pytest.param(failing(400, f"bad {KEY}\nthing"), "refused the request (400): ", id="400"),
        pytest.param(failing(500), "had an internal error (500)", id="500"),
        pytest.param(failing(503), "had an internal error (503)", id="503"),
        pytest.param(broken, "broke off the connection", id="reset mid-stream"),
        pytest.param(Exchange.reset, "broke off the connection", id="reset before the answer"),
        pytest.param(stalling, "gave no answer within 0.2 s", id="stall before the first token"),
        pytest.param(
            Exchange.wait_for_the_client_to_leave,
            "gave no answer within 0.2 s",
            id="stall before the headers",
        ),
        pytest.param(pausing, "stopped in the middle of its answer for 0.2 s", id="stall between tokens"),
        pytest.param(chat(), "without having begun it", id="empty stream"),
        pytest.param(error_event, "reported an error: overloaded, ***", id="error event"),
        pytest.param(garbage, "not an answer", id="garbage"),
        pytest.param(page, "answered with a web page", id="web page"),
        pytest.param(lambda x: x.whole(200, {"ok": 1}), "without having begun it", id="no stream"),
    ],
)
def test_a_failing_server_is_one_clear_sentence(behaviour: Behaviour, sentence: str) -> None:
    message = failure(behaviour, patience=SHORT)
    assert sentence in message
    assert "\n" not in message
    assert message.startswith("The language model")


def test_a_server_that_is_not_there_is_one_clear_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        llm = engine(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        with pytest.raises(EngineError, match=r"cannot be reached; is it running\?"):
            list(llm.generate(HI))
        with pytest.raises(EngineUnavailable, match="cannot be reached"):
            llm.warm()


@pytest.mark.parametrize("first", [failing(500), Exchange.reset, lambda x: (x.begin(), x.reset())])
def test_a_failure_before_the_first_token_is_tried_once_more(first: Behaviour) -> None:
    with serving(first, HELLO) as server, closing(engine(server.url)) as llm:
        assert next(iter(llm.generate(HI))) == Token("Hel")


@pytest.mark.parametrize(
    ("behaviour", "requests"), [(failing(500), 2), (failing(401), 1), (failing(429), 1), (broken, 1)]
)
def test_retries_are_few(behaviour: Behaviour, requests: int) -> None:
    with serving(behaviour) as server, closing(engine(server.url)) as llm:
        with pytest.raises(EngineError):
            list(llm.generate(HI))
        assert len(server.posts) == requests


def test_the_turn_after_a_failure_works() -> None:
    with serving(failing(429), broken, HELLO) as server, closing(engine(server.url)) as llm:
        for _ in range(2):
            with pytest.raises(EngineError):
                list(llm.generate(HI))
        assert list(llm.generate(HI))[-1] == Finish("stop", 7, 2, 3)


@pytest.mark.parametrize("behaviour", [stalling, Exchange.wait_for_the_client_to_leave])
def test_cancelling_wakes_a_blocked_read_and_hangs_up(behaviour: Behaviour) -> None:
    scope = CancelScope("response")
    got: list[object] = []
    with serving(behaviour) as server, closing(engine(server.url)) as llm:

        def run() -> None:
            with entered(scope):
                got.extend(llm.generate(HI))

        thread = threading.Thread(target=run)
        thread.start()
        assert server.stalled.wait(5)
        began = time.monotonic()
        scope.cancel()
        thread.join(5)
        assert not thread.is_alive()
        assert time.monotonic() - began < 0.5
        assert server.hung_up.wait(5)
    assert got == []


def test_a_cancelled_scope_asks_nothing() -> None:
    scope = CancelScope("response")
    scope.cancel()
    with serving(HELLO) as server, closing(engine(server.url)) as llm, entered(scope):
        assert list(llm.generate(HI)) == []


def test_closing_the_answer_hangs_up() -> None:
    with serving(pausing) as server, closing(engine(server.url)) as llm:
        answer = llm.generate(HI)
        assert next(answer) == Token("Hel")
        answer.close()  # type: ignore[attr-defined]
        assert server.hung_up.wait(5)


def test_closing_the_engine_breaks_off_what_is_being_answered() -> None:
    with serving(pausing) as server:
        llm = engine(server.url)
        answer = llm.generate(HI)
        next(answer)
        llm.close()
        with pytest.raises(EngineError, match="broke off"):
            next(answer)
        assert server.hung_up.wait(5)


def test_no_thread_outlives_its_request() -> None:
    before = set(threading.enumerate())
    with serving(HELLO) as server, closing(engine(server.url)) as llm:
        list(llm.generate(HI))
        dogs = [thread for thread in set(threading.enumerate()) - before if thread.name == "llm-watchdog"]
        for dog in dogs:
            dog.join(2)
            assert not dog.is_alive()


def test_warming_makes_one_small_request() -> None:
    with serving(HELLO) as server, closing(engine(server.url)) as llm:
        llm.warm()
        assert server.posts[0]["max_tokens"] == 16


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(EngineUnavailable, match="DUOLOGUE_LLM_API_KEY"):
        ChatCompletions(EngineSettings("chat-completions"))


def test_the_key_of_openai_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(HELLO) as server, closing(ChatCompletions(EngineSettings("x", "m", server.url))) as llm:
        list(llm.generate(HI))
        assert server.keys == ["Bearer none"]
