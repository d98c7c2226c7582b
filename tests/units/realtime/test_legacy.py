from __future__ import annotations

from typing import Any

import pytest

from units.realtime.config import SessionConfig
from units.realtime.errors import ProtocolError
from units.realtime.legacy import modern

DEFAULT = SessionConfig.default(id="sess_1", model="m", instructions="", voice="v", expires_at=0)


@pytest.mark.parametrize(
    ("flat", "found"),
    [
        ({"voice": "verse"}, {"audio": {"output": {"voice": "verse"}}}),
        ({"speed": 1.2}, {"audio": {"output": {"speed": 1.2}}}),
        (
            {"input_audio_format": "pcm16"},
            {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24_000}}}},
        ),
        ({"output_audio_format": "g711_alaw"}, {"audio": {"output": {"format": {"type": "audio/pcma"}}}}),
        ({"modalities": ["audio", "text"]}, {"output_modalities": ["audio"]}),
        ({"modalities": ["text"]}, {"output_modalities": ["text"]}),
        ({"max_response_output_tokens": "inf"}, {"max_output_tokens": "inf"}),
        ({"temperature": 0.7}, {}),
        ({"turn_detection": None}, {"audio": {"input": {"turn_detection": None}}}),
        (
            {"voice": "a", "audio": {"output": {"speed": 1.1}}},
            {"audio": {"output": {"voice": "a", "speed": 1.1}}},
        ),
    ],
)
def test_flat_members_are_found_where_they_belong(flat: dict[str, Any], found: dict[str, Any]) -> None:
    mapped = modern(flat)
    assert mapped == {"type": "realtime", **found}
    DEFAULT.updated(mapped)


def test_todays_shape_stays_as_it_is() -> None:
    wire = DEFAULT.wire()
    assert modern(wire) == wire


def test_what_is_wrong_is_still_refused() -> None:
    with pytest.raises(ProtocolError) as refused:
        DEFAULT.updated(modern({"voice": 5}))
    assert refused.value.param == "session.audio.output.voice"


@pytest.mark.parametrize(
    "session",
    [
        {"audio": "x", "voice": "alloy"},
        {"audio": None, "voice": "a"},
        {"audio": {"input": None}, "turn_detection": None},
        {"audio": {"output": []}, "speed": 1},
    ],
)
def test_what_is_wrong_beside_flat_members_is_left_for_the_checks(session: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as refused:
        DEFAULT.updated(modern(session))
    assert str(refused.value.param).startswith("session.audio")
