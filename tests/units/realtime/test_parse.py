from __future__ import annotations

import json
import time

import pytest

from units.realtime.errors import ProtocolError
from units.realtime.parse import MAX_DEPTH, MAX_MESSAGE, event_type, parse_event


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


REFUSED = [
    ("", "invalid_json"),
    ("{", "invalid_json"),
    ("hello", "invalid_json"),
    ("{'type':'x'}", "invalid_json"),
    ('{"type":"x"}{"type":"x"}', "invalid_json"),
    ('{"type":NaN}', "invalid_json"),
    ('{"type":"x","n":Infinity}', "invalid_json"),
    ('{"type":"x","n":-Infinity}', "invalid_json"),
    ('{"type":"x","n":1e999}', "invalid_json"),
    ("9" * 5_000, "invalid_json"),
    ("0." + "9" * 5_000, "invalid_json"),
    ("[" * 10_000, "invalid_json"),
    ("[" * 10_000 + "]" * 10_000, "invalid_json"),
    ('{"a":' * 10_000, "invalid_json"),
    (nested(MAX_DEPTH + 1), "invalid_json"),
    (b'{"type":"x"}', "invalid_event"),
    (b"\xff\x00", "invalid_event"),
    ("null", "invalid_event"),
    ("[]", "invalid_event"),
    ('"type"', "invalid_event"),
    (json.dumps({"type": "x", "text": "x" * 300_000}), "invalid_event"),
]


@pytest.mark.parametrize(("message", "code"), REFUSED)
def test_what_is_not_a_json_object_is_refused(message: str | bytes, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_event(message)
    assert (caught.value.code, caught.value.param) == (code, None)
    assert len(caught.value.message) < 300
    if code == "invalid_json":
        assert caught.value.message.startswith("Invalid event: failed to parse JSON")


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ('{"type":"x"}', {"type": "x"}),
        ("{}", {}),
        ('  {"type":"ü","n":1.5e3}\n', {"type": "ü", "n": 1500.0}),
        ('{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a":"\\ud800b"}', {"a": "\ufffdb"}),
        ('{"\\udc00":["\\udfff"]}', {"\ufffd": ["\ufffd"]}),
        ('{"a":"\ud800"}', {"a": "\ufffd"}),
        ('{"a":"\\\\ud800"}', {"a": "\\ud800"}),
    ],
)
def test_a_json_object_is_an_event(message: str, event: dict[str, object]) -> None:
    parsed = parse_event(message)
    assert parsed == event
    json.dumps(parsed, ensure_ascii=False).encode()


def test_depth_and_size_up_to_the_limit_pass() -> None:
    parse_event(nested(MAX_DEPTH))
    frame = '{"a":""}'
    parse_event(frame.replace('""', '"' + "x" * (MAX_MESSAGE - len(frame)) + '"'))


@pytest.mark.parametrize("value", ["0,", "[],", '{"a":1},', '"\\ud800",'])
def test_a_message_of_too_many_values_is_refused_before_it_is_parsed(value: str) -> None:
    message = '{"a":[' + value * (16_000_000 // len(value)) + "0]}"
    began = time.perf_counter()
    with pytest.raises(ProtocolError) as caught:
        parse_event(message, limit=1 << 24)
    assert caught.value.code == "invalid_event"
    assert time.perf_counter() - began < 0.5  # parsing takes seconds


def test_half_a_character_in_a_huge_message_is_refused() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_event('{"a":"\\ud800","b":"' + "x" * MAX_MESSAGE + '"}', limit=1 << 24)
    assert caught.value.code == "invalid_json"


def test_another_transport_may_have_another_limit() -> None:
    parse_event('{"a":"' + "x" * 300_000 + '"}', limit=400_000)


@pytest.mark.parametrize(
    ("event", "code"),
    [({}, "missing_required_parameter"), ({"type": None}, "invalid_type"), ({"type": 5}, "invalid_type")],
)
def test_an_event_has_a_type(event: dict[str, object], code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        event_type(event)
    assert (caught.value.code, caught.value.param) == (code, "type")
