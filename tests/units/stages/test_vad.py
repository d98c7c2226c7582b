"""The voice activity stage with the scripted detector: chunks of 512 samples (32 ms) are loud or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from units.engines.base import EngineError, EngineSettings, TurnDetector
from units.engines.scripted import ScriptedTurn, ScriptedVad
from units.messages import (
    EAR_RATE,
    Await,
    Clear,
    Commit,
    Committed,
    Eagerness,
    Float32,
    Listen,
    Pcm,
    Speech,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    StayedSilent,
)
from units.stages.vad import detect_turns

CHUNK = 512
CHUNK_MS = 32


def loud(chunks: int) -> Pcm:
    return Pcm(np.full(chunks * CHUNK, 0.3, np.float32))


def quiet(chunks: int) -> Pcm:
    return Pcm(np.zeros(chunks * CHUNK, np.float32))


def heard(*bodies: object) -> list[Any]:
    return [*detect_turns(iter(bodies), ScriptedVad(EngineSettings("scripted")))]  # type: ignore[arg-type]


def kinds(outputs: Iterable[object]) -> list[str]:
    return [output.purpose if isinstance(output, Speech) else type(output).__name__ for output in outputs]


def speeches(outputs: Iterable[object], purpose: str = "final") -> list[Speech]:
    return [each for each in outputs if isinstance(each, Speech) and each.purpose == purpose]


def seconds(samples: Float32) -> float:
    return len(samples) / EAR_RATE


QUIET_LIVE = Listen(live=False)


def test_a_turn_pauses_at_200_ms_and_ends_at_500_ms_of_silence() -> None:
    outputs = heard(QUIET_LIVE, quiet(20), loud(20), quiet(20))
    assert kinds(outputs) == ["SpeechStarted", "SpeechPaused", "final", "SpeechEnded"]
    _, paused, speech, ended = outputs
    assert paused == SpeechPaused(1, 1, 40 * CHUNK_MS)
    assert ended == SpeechEnded(1, (40 + 16) * CHUNK_MS)
    assert (speech.turn, speech.revision) == (1, 1)


def test_nothing_ends_before_its_silence_is_over() -> None:
    assert kinds(heard(QUIET_LIVE, loud(20), quiet(6))) == ["SpeechStarted"]
    assert kinds(heard(QUIET_LIVE, loud(20), quiet(7))) == ["SpeechStarted", "SpeechPaused", "final"]
    assert "SpeechEnded" not in kinds(heard(QUIET_LIVE, loud(20), quiet(15)))


def test_one_loud_chunk_is_a_click_and_two_are_speech() -> None:
    assert heard(quiet(5), loud(1), quiet(20)) == []
    assert kinds(heard(quiet(5), loud(2))) == ["SpeechStarted"]


def test_speech_starts_with_its_prefix() -> None:
    started, _, speech, _ = heard(QUIET_LIVE, quiet(50), loud(10), quiet(20))
    assert started.audio_start_ms == pytest.approx(50 * CHUNK_MS - 300, abs=CHUNK_MS)
    assert seconds(speech.samples) == pytest.approx(0.3 + 10 * 0.032 + 0.2, abs=0.04)
    assert np.flatnonzero(speech.samples)[0] == pytest.approx(0.3 * EAR_RATE, abs=CHUNK)


def test_the_prefix_is_as_long_as_the_session_wants_it() -> None:
    started = heard(Listen(prefix_padding_ms=1000, live=False), quiet(50), loud(2))[0]
    assert started.audio_start_ms == pytest.approx(50 * CHUNK_MS - 1000, abs=CHUNK_MS)
    started = heard(Listen(prefix_padding_ms=0, live=False), quiet(50), loud(2))[0]
    assert started.audio_start_ms == 50 * CHUNK_MS


def test_speech_at_the_very_beginning_starts_at_zero() -> None:
    assert heard(loud(2)) == [SpeechStarted(1, 0)]


def test_a_caller_who_goes_on_resumes_the_turn_with_a_new_revision() -> None:
    outputs = heard(QUIET_LIVE, loud(20), quiet(10), loud(10), quiet(20))
    assert kinds(outputs) == [
        "SpeechStarted",
        "SpeechPaused",
        "final",
        "SpeechResumed",
        "SpeechPaused",
        "final",
        "SpeechEnded",
    ]
    first, second = speeches(outputs)
    assert (first.revision, second.revision) == (1, 2)
    assert (first.superseded.cancelled, second.superseded.cancelled) == (True, False)
    assert len(second.samples) > len(first.samples)
    assert outputs[3] == SpeechResumed(1)


def test_a_click_in_the_pause_does_not_resume_the_turn() -> None:
    outputs = heard(QUIET_LIVE, loud(20), quiet(10), loud(1), quiet(20))
    assert kinds(outputs) == ["SpeechStarted", "SpeechPaused", "final", "SpeechEnded"]


def test_turns_count_up() -> None:
    outputs = heard(QUIET_LIVE, loud(20), quiet(20), loud(20), quiet(20))
    assert [each.turn for each in outputs if isinstance(each, SpeechEnded)] == [1, 2]
    assert [each.revision for each in speeches(outputs)] == [1, 1]


@pytest.mark.parametrize("size", [1, 160, 511, 512, 513, 960, 20_000])
def test_the_same_sound_gives_the_same_turns_in_pieces_of_any_size(size: int) -> None:
    sound = np.concatenate([each.samples for each in (quiet(5), loud(8), quiet(9), loud(5), quiet(20))])
    pieces = [Pcm(sound[start : start + size]) for start in range(0, len(sound), size)]
    whole, cut = heard(QUIET_LIVE, Pcm(sound)), heard(QUIET_LIVE, *pieces)
    assert kinds(whole) == kinds(cut)
    for one, other in zip(speeches(whole), speeches(cut), strict=True):
        assert np.array_equal(one.samples, other.samples)


def test_a_silence_window_shorter_than_the_soft_end_still_gives_the_words() -> None:
    outputs = heard(Listen(silence_ms=100, soft_end_ms=200, live=False), loud(20), quiet(5))
    assert kinds(outputs) == ["SpeechStarted", "SpeechPaused", "final", "SpeechEnded"]


def test_live_pieces_grow_and_come_about_once_a_second() -> None:
    pieces = speeches(heard(Listen(live=True), loud(100)), "live")
    assert [round(seconds(piece.samples)) for piece in pieces] == [1, 2, 3]


def test_a_long_turn_is_settled_at_a_dip() -> None:
    outputs = heard(QUIET_LIVE, loud(650), quiet(1), loud(100), quiet(20))
    assert kinds(outputs) == ["SpeechStarted", "settled", "SpeechPaused", "final", "SpeechEnded"]
    settled, final = speeches(outputs, "settled")[0], speeches(outputs)[0]
    assert len(settled.samples) == final.before == 651 * CHUNK
    assert not settled.superseded.cancelled


def test_a_turn_without_dips_is_settled_before_30_seconds() -> None:
    pieces = speeches(heard(QUIET_LIVE, loud(2000)), "settled")
    assert len(pieces) == 2
    assert all(seconds(piece.samples) < 30 for piece in pieces)


def test_the_pieces_of_a_long_turn_are_its_whole_sound() -> None:
    sound = np.random.default_rng(0).uniform(0.2, 0.4, 900 * CHUNK).astype(np.float32)
    outputs = heard(QUIET_LIVE, Pcm(sound), quiet(20))
    pieces = [each.samples for each in outputs if isinstance(each, Speech)]
    assert np.array_equal(np.concatenate(pieces)[: len(sound)], sound)


def test_without_turn_detection_nothing_is_said_until_a_commit() -> None:
    outputs = heard(Listen(turn_detection=False), loud(20), quiet(30), Commit("item"))
    committed, speech = outputs
    assert committed == Committed("item", 1, 1, 50 * CHUNK_MS)
    assert (speech.turn, speech.revision, len(speech.samples)) == (1, 1, 50 * CHUNK)


def test_a_commit_takes_the_odd_samples_at_the_end_too() -> None:
    sound = Pcm(np.full(5_000, 0.3, np.float32))
    committed, speech = heard(Listen(turn_detection=False), sound, Commit("item"))
    assert len(speech.samples) == 5_000
    assert committed.audio_ms == 5_000 // 16


def test_a_commit_of_less_than_100_ms_keeps_the_sound() -> None:
    outputs = heard(Listen(turn_detection=False), loud(3), Commit("a"), loud(3), Commit("b"))
    assert kinds(outputs) == ["Committed", "Committed", "final"]
    assert [each.audio_ms for each in outputs[:2]] == [96, 192]


def test_a_second_commit_takes_only_what_came_after_the_first() -> None:
    outputs = heard(Listen(turn_detection=False), loud(10), Commit("a"), loud(20), Commit("b"))
    assert [len(each.samples) // CHUNK for each in speeches(outputs)] == [10, 20]
    assert [each.turn for each in speeches(outputs)] == [1, 2]


def test_a_commit_in_the_middle_of_speech_ends_the_turn_under_its_number() -> None:
    outputs = heard(QUIET_LIVE, loud(20), Commit("a"), quiet(30))
    assert kinds(outputs) == ["SpeechStarted", "Committed", "final"]
    assert outputs[1].turn == 1


def test_clear_forgets_the_sound_and_the_turn() -> None:
    assert kinds(heard(QUIET_LIVE, loud(20), Clear(), quiet(40))) == ["SpeechStarted"]
    outputs = heard(Listen(turn_detection=False), loud(20), Clear(), loud(5), Commit("a"))
    assert outputs[0].audio_ms == 5 * CHUNK_MS


def test_switching_turn_detection_off_drops_the_turn() -> None:
    outputs = heard(QUIET_LIVE, loud(20), Listen(turn_detection=False), loud(20), quiet(30))
    assert kinds(outputs) == ["SpeechStarted"]


def test_the_language_of_the_session_goes_with_its_speech() -> None:
    outputs = heard(Listen(language="de", live=False), loud(20), quiet(20))
    assert speeches(outputs)[0].language == "de"


def test_sound_before_a_commit_is_kept_for_five_minutes_at_most() -> None:
    outputs = heard(Listen(turn_detection=False), *[quiet(100)] * 100, Commit("a"))
    assert outputs[0].audio_ms == pytest.approx(300_000, abs=2 * CHUNK_MS)


def test_silence_begins_where_the_sound_stops_not_where_the_detector_notices() -> None:
    class Late:
        """Goes on hearing speech for two chunks after the sound has stopped, as recurrent models do."""

        def __init__(self) -> None:
            self.left = 0

        def open(self) -> Late:
            return Late()

        def probability(self, chunk: Float32) -> float:
            self.left = 3 if np.abs(chunk).max() > 0.01 else self.left - 1
            return 1.0 if self.left > 0 else 0.0

        def reset(self) -> None:
            self.left = 0

    spoken = np.full(20 * CHUNK, 0.3, np.float32) * np.sign(np.sin(np.arange(20 * CHUNK)))
    sound = np.concatenate([spoken.astype(np.float32), np.zeros(40 * CHUNK, np.float32)])
    outputs = [*detect_turns([Listen(soft_end_ms=96, silence_ms=320), Pcm(sound)], Late())]
    paused = next(each for each in outputs if isinstance(each, SpeechPaused))
    ended = next(each for each in outputs if isinstance(each, SpeechEnded))
    assert paused.audio_end_ms == 640
    assert ended.audio_end_ms == 640 + 320


def test_a_commit_right_after_a_long_turn_was_settled_holds_that_turn() -> None:
    long = loud(28 * EAR_RATE // CHUNK + 1)
    outputs = [*detect_turns([Listen(), long, Commit("item_1")], ScriptedVad(EngineSettings("scripted")))]
    committed = next(each for each in outputs if isinstance(each, Committed))
    assert committed.audio_ms >= 28_000


def test_silence_is_noted_once_when_it_is_awaited() -> None:
    outputs = heard(quiet(10), Await(640), quiet(19), quiet(1), quiet(100))
    assert outputs == [StayedSilent(320, 960)]


def test_speech_is_no_silence() -> None:
    assert "StayedSilent" not in kinds(heard(QUIET_LIVE, Await(640), quiet(10), loud(5), quiet(100)))
    assert "StayedSilent" not in kinds(heard(QUIET_LIVE, loud(5), Await(640), quiet(100)))
    assert heard(Await(640), quiet(10), Await(0), quiet(100)) == []


# --- the end of a turn as a model judges it ------------------------------------------------------

EAGER = Eagerness(threshold=0.5, finished_ms=320, unfinished_ms=1600)
JUDGED = Listen(soft_end_ms=96, silence_ms=640, eagerness=EAGER, live=False)


def trailing_off(chunks: int) -> Pcm:
    """Speech after which the scripted detector thinks that more is to come."""
    return Pcm(np.full(chunks * CHUNK, 0.03, np.float32))


class Asked:
    """Gives one answer after another, the last for good, and keeps what it was asked."""

    def __init__(self, *answers: float | EngineError) -> None:
        self.answers = [*answers]
        self.sounds: list[Float32] = []

    def finished(self, samples: Float32) -> float:
        self.sounds.append(samples)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, EngineError):
            raise answer
        return answer


def judged(*bodies: object, by: TurnDetector | None = None) -> list[Any]:
    turn_detector = by or ScriptedTurn(EngineSettings("scripted"))
    return [*detect_turns(iter(bodies), ScriptedVad(EngineSettings("scripted")), turn_detector)]  # type: ignore[arg-type]


def silence_before_the_end(outputs: Iterable[object]) -> list[int]:
    """Milliseconds from the last sound of each turn to its end."""
    paused = {each.turn: each for each in outputs if isinstance(each, SpeechPaused)}
    ends = [each for each in outputs if isinstance(each, SpeechEnded)]
    return [each.audio_end_ms - paused[each.turn].audio_end_ms for each in ends]


def test_a_caller_who_has_finished_waits_a_short_time() -> None:
    outputs = judged(JUDGED, loud(20), quiet(60))
    assert kinds(outputs) == ["SpeechStarted", "SpeechPaused", "final", "SpeechEnded"]
    assert silence_before_the_end(outputs) == [320]


def test_a_caller_who_has_not_finished_is_given_time() -> None:
    assert "SpeechEnded" not in kinds(judged(JUDGED, trailing_off(20), quiet(49)))
    assert silence_before_the_end(judged(JUDGED, trailing_off(20), quiet(60))) == [1600]


def test_each_pause_is_judged_anew() -> None:
    outputs = judged(JUDGED, trailing_off(20), quiet(40), loud(20), quiet(40))
    pause = ["SpeechPaused", "final"]
    assert kinds(outputs) == ["SpeechStarted", *pause, "SpeechResumed", *pause, "SpeechEnded"]
    assert silence_before_the_end(outputs) == [320]
    outputs = judged(JUDGED, loud(20), quiet(7), trailing_off(20), quiet(60))
    assert silence_before_the_end(outputs) == [1600]


def test_a_pause_is_judged_once() -> None:
    model = Asked(0.0)
    judged(JUDGED, loud(20), quiet(100), by=model)
    assert len(model.sounds) == 1


def test_the_words_are_on_their_way_before_the_model_is_asked() -> None:
    model = Asked(1.0)
    outputs = detect_turns([JUDGED, loud(20), quiet(20)], ScriptedVad(EngineSettings("scripted")), model)
    assert kinds([next(outputs), next(outputs), next(outputs)]) == ["SpeechStarted", "SpeechPaused", "final"]
    assert model.sounds == []
    assert kinds(outputs) == ["SpeechEnded"]
    assert len(model.sounds) == 1


def test_the_model_hears_the_turn_up_to_the_soft_end() -> None:
    model = Asked(1.0)
    judged(JUDGED, quiet(30), loud(20), quiet(30), by=model)
    sound = model.sounds[0]
    silence = np.flatnonzero(sound)[-1] + 1
    assert (len(sound) - silence) / EAR_RATE == pytest.approx(0.096, abs=0.032)
    assert np.flatnonzero(sound)[0] == pytest.approx(0.3 * EAR_RATE, abs=CHUNK)


def test_the_model_also_hears_what_was_settled_of_a_long_turn() -> None:
    model = Asked(1.0)
    judged(JUDGED, loud(650), quiet(1), loud(10), quiet(30), by=model)
    assert 8 < seconds(model.sounds[0]) < 9


@pytest.mark.parametrize("size", [160, 513, 20_000])
def test_judged_turns_are_the_same_in_pieces_of_any_size(size: int) -> None:
    parts = (quiet(5), trailing_off(8), quiet(30), loud(5), quiet(20), trailing_off(9), quiet(70))
    sound = np.concatenate([each.samples for each in parts])
    pieces = [Pcm(sound[start : start + size]) for start in range(0, len(sound), size)]
    whole, cut = judged(JUDGED, Pcm(sound)), judged(JUDGED, *pieces)
    assert kinds(whole) == kinds(cut)
    assert silence_before_the_end(whole) == pytest.approx(silence_before_the_end(cut), abs=CHUNK_MS)


def test_a_commit_does_not_wait_for_the_caller_to_finish() -> None:
    outputs = judged(JUDGED, trailing_off(20), quiet(10), Commit("a"), quiet(100))
    assert kinds(outputs) == ["SpeechStarted", "SpeechPaused", "final", "Committed", "final"]
    assert (outputs[3].turn, outputs[4].revision) == (1, 2)


def test_server_vad_asks_no_model_and_neither_do_manual_turns() -> None:
    model = Asked(0.0)
    outputs = judged(Listen(silence_ms=640, live=False), loud(20), quiet(60), by=model)
    assert silence_before_the_end(outputs) == [640]
    judged(Listen(turn_detection=False), loud(20), quiet(60), Commit("a"), by=model)
    assert model.sounds == []


def test_settings_that_change_in_a_pause_count_at_once() -> None:
    plain = Listen(soft_end_ms=96, silence_ms=640, live=False)
    assert silence_before_the_end(judged(JUDGED, trailing_off(20), quiet(10), plain, quiet(60))) == [640]
    assert silence_before_the_end(judged(plain, trailing_off(20), quiet(10), JUDGED, quiet(60))) == [640]
    low = replace(JUDGED, eagerness=replace(EAGER, unfinished_ms=3200))
    assert silence_before_the_end(judged(JUDGED, trailing_off(20), quiet(10), low, quiet(120))) == [3200]
    assert silence_before_the_end(judged(low, trailing_off(20), quiet(70), JUDGED, quiet(1))) == [71 * 32]


def test_a_change_in_the_middle_of_speech_counts_from_the_next_pause() -> None:
    plain = Listen(soft_end_ms=96, silence_ms=640, live=False)
    assert silence_before_the_end(judged(plain, trailing_off(20), JUDGED, trailing_off(5), quiet(60))) == [
        1600
    ]
    assert silence_before_the_end(judged(JUDGED, trailing_off(20), plain, trailing_off(5), quiet(60))) == [
        640
    ]


def test_the_threshold_is_the_sessions() -> None:
    sure = replace(JUDGED, eagerness=replace(EAGER, threshold=0.8))
    assert silence_before_the_end(judged(JUDGED, loud(20), quiet(60), by=Asked(0.7))) == [320]
    assert silence_before_the_end(judged(sure, loud(20), quiet(60), by=Asked(0.7))) == [1600]


def test_without_a_model_silence_ends_the_turn() -> None:
    assert silence_before_the_end(heard(JUDGED, loud(20), quiet(60))) == [640]


def test_a_model_that_fails_leaves_it_to_silence_and_is_asked_again() -> None:
    model = Asked(EngineError("out of memory"), 1.0)
    outputs = judged(JUDGED, loud(20), quiet(30), loud(20), quiet(30), by=model)
    assert silence_before_the_end(outputs) == [640, 320]
