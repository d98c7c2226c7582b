from __future__ import annotations

import asyncio
import os

import av
import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError

from server.track import FRAME, Pace, Speech, SpeechTrack, play_to_nobody, silent_frame
from tests.server.fakes import Tone


def spoken(speech: Speech) -> np.ndarray:
    """All that comes until silence."""
    frames = []
    while (frame := speech.next()) is not None:
        assert frame.shape == (FRAME,)
        assert frame.dtype == np.int16
        frames.append(frame)
    return np.concatenate(frames)


@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000, 44_100, 48_000])
def test_speech_at_any_rate_becomes_24_khz_of_the_same_length(rate: int) -> None:
    samples = spoken(Speech(Tone(1.0, rate)))
    (loud,) = np.nonzero(np.abs(samples) > 500)
    assert abs((loud[-1] - loud[0]) / 24_000 - 1.0) < 0.02
    middle = samples[4800:19_200].astype(float)
    assert abs(np.sqrt(np.mean(middle**2)) - 8000 / np.sqrt(2)) < 100
    assert np.abs(np.diff(middle)).max() < 1.1 * 8000 * 2 * np.pi * 300 / 24_000


def test_a_wave_that_is_cut_off_returns_to_zero_without_a_step() -> None:
    tone = Tone(1.0, hertz=310)
    speech = Speech(tone)
    last = 0
    while abs(last) < 4000:
        last = int(speech.next()[-1])
    tone.say(0)
    fading = speech.next().astype(int)
    assert abs(fading[0] - last) < 100
    assert np.abs(np.diff(fading)).max() < 100
    assert fading[-1] == 0


def test_silence_lasts_a_little_before_there_is_nothing() -> None:
    speech = Speech(Tone(0.02))
    frames = [speech.next() for _ in range(8)]
    assert [x is None for x in frames] == [False] * 6 + [True] * 2


def test_the_silent_frame_decodes_to_silence() -> None:
    decoder = av.CodecContext.create("libopus", "r")
    decoder.format, decoder.layout, decoder.sample_rate = "s16", "mono", 48_000
    for _ in range(5):
        (frame,) = decoder.decode(av.Packet(silent_frame()))
    assert frame.samples == 960
    assert np.abs(frame.to_ndarray()).max() == 0
    assert len(silent_frame()) < 10


def starts(wakeups: list[float]) -> list[float]:
    """When each frame goes out, if the caller comes at ``wakeups``."""
    pace = Pace()
    return [now + pace.wait(now) for now in wakeups]


def test_frames_leave_every_20_ms() -> None:
    assert starts([0, 0.001, 0.021, 0.041]) == pytest.approx([0, 0.02, 0.04, 0.06])


def test_a_small_delay_is_made_up_for() -> None:
    assert starts([0, 0.025, 0.026]) == pytest.approx([0, 0.025, 0.04])


def test_missed_frames_follow_spaced_and_not_in_a_burst() -> None:
    times = starts([0, 0.2, *[0.2] * 20])
    gaps = np.diff(times[1:])
    assert gaps.min() == pytest.approx(0.01)
    assert times[-1] == pytest.approx(0.42)


def test_after_a_long_stop_the_clock_starts_anew() -> None:
    assert starts([0, 5, 5, 5]) == pytest.approx([0, 5, 5.02, 5.04])


async def test_timestamps_advance_by_960_from_silence_through_speech_to_silence() -> None:
    tone = Tone()
    track = SpeechTrack(tone)
    track._pace = Pace(0)
    stamps, sizes = [], []
    for i in range(30):
        if i == 10:
            tone.say(0.1)
        packet = await track.recv()
        stamps.append(packet.pts)
        sizes.append(packet.size)
    assert np.diff(stamps).tolist() == [960] * 29
    assert packet.time_base == 1 / 48_000 or packet.time_base.denominator == 48_000
    assert max(sizes[:10]) < 10 < 40 < sizes[12]
    assert sizes[-1] < 10


async def test_another_codec_gets_frames() -> None:
    track = SpeechTrack(Tone(0.02))
    track.raw = True
    frames = [await track.recv() for _ in range(2)]
    assert [(x.samples, x.sample_rate, x.pts) for x in frames] == [(480, 24_000, 0), (480, 24_000, 480)]


async def test_a_stopped_track_ends() -> None:
    track = SpeechTrack(Tone())
    track.stop()
    with pytest.raises(MediaStreamError):
        await track.recv()


async def test_speech_passes_in_real_time_when_nobody_listens() -> None:
    tone = Tone(0.2)
    task = asyncio.create_task(play_to_nobody(tone))
    await asyncio.sleep(0.15)
    assert tone.pulled == 2400
    task.cancel()


async def test_a_stopped_track_lets_go_of_its_native_threads_at_once() -> None:
    track = SpeechTrack(Tone(1.0, 16_000))
    before = len(os.listdir("/proc/self/task"))
    for _ in range(3):
        await track.recv()
    assert len(os.listdir("/proc/self/task")) > before
    track.stop()
    assert len(os.listdir("/proc/self/task")) <= before
    with pytest.raises(MediaStreamError):
        await track.recv()
