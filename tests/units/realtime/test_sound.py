"""Long pieces of sound are taken apart, and nothing else is."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from units.realtime.sound import PIECE, pieces

LIMIT = 1 << 24


def append(audio: str, **more: str) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio, **more})


def test_a_long_append_becomes_short_ones_with_the_same_sound() -> None:
    sound = np.random.default_rng(0).integers(0, 256, 500_000, np.uint8).tobytes()
    parts = [
        json.loads(text) for text in pieces(append(base64.b64encode(sound).decode(), event_id="a"), LIMIT)
    ]
    assert b"".join(base64.b64decode(part["audio"], validate=True) for part in parts) == sound
    assert {part["event_id"] for part in parts} == {"a"}
    assert all(len(part["audio"]) <= PIECE for part in parts)


@pytest.mark.parametrize("wrong", ["!", "A", "====", "AA==AAAA"])
def test_wrong_sound_is_found_to_be_wrong_as_a_whole(wrong: str) -> None:
    (part,) = pieces(append("AAAA" * PIECE + wrong, event_id="a"), LIMIT)
    with pytest.raises(ValueError, match=r"base64|padding|data"):
        base64.b64decode(json.loads(part)["audio"], validate=True)
    assert json.loads(part)["event_id"] == "a"


@pytest.mark.parametrize(
    "message",
    [
        append("AAAA" * (PIECE // 4 - 1) + "AAA=" + "AAAA" * PIECE),
        append(base64.b64encode(bytes(300_001)).decode()),
        '{"type":"input_audio_buffer.append","audio":' + "[" * 100,
        '{"type":"input_audio_buffer.append","audio":5}',
        '{"type":"response.create","x":"input_audio_buffer.append"}',
        '{"type":"response.create"}',
        "",
    ],
)
def test_what_cannot_be_taken_apart_is_given_back_as_it_is(message: str) -> None:
    assert pieces(message, LIMIT) == [message]
