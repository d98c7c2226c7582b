"""The sound of a call as an Ogg Opus file: the caller on the left, the assistant on the right.

The event loop only puts arrays into a queue. All else happens on the writer's thread, twice a second: sound
is put in its place, mixed up to a little more than a second ago, encoded, and written in pages of 0.2 s.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np

from server.records.tracks import RATE, Track
from server.records.writer import PrivateFile, Writer
from units.messages import EAR_RATE, Float32, Int16
from units.observe import Observer
from units.resample import VoiceResampler

BIT_RATE = 48_000
LAG = 1.25
"""Seconds that sound may be late: clients send pieces of up to one."""
_FRAME = RATE * 60 // 1000
_TURN = 10 * RATE // _FRAME
"""Frames that are written at most before other recordings have their turn: ten seconds."""
_MOST_BYTES = 16 << 20
"""Of sound that waits for a disk that does not take it: two minutes of a call."""
_OVERHEAD = 300
"""Bytes for each piece of it."""
_PAGES = {"page_duration": "200000", "flush_packets": "1"}
_CODEC = {"application": "audio", "frame_duration": "60", "compression_level": "0"}


class OpusFile:
    """An Ogg Opus file in stereo, readable at any time but for its last page. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._file = PrivateFile(path)
        self._container = av.open(self._file, "w", format="ogg", options=_PAGES)
        self._stream = self._container.add_stream("libopus", rate=RATE, layout="stereo")
        codec = self._stream.codec_context
        codec.format, codec.bit_rate, codec.thread_count, codec.options = "s16", BIT_RATE, 1, _CODEC
        self._frame = av.AudioFrame(format="s16", layout="stereo", samples=_FRAME)
        self._frame.sample_rate = RATE
        self._pts = 0

    def write(self, left: Int16, right: Int16) -> None:
        """Both have the same length, a multiple of :data:`_FRAME`."""
        for frame in np.stack([left, right], axis=1).reshape(-1, _FRAME, 2):
            self._frame.planes[0].update(frame.tobytes())
            self._frame.pts = self._pts
            self._pts += _FRAME
            self._container.mux(self._stream.encode(self._frame))

    def close(self) -> None:
        """Write the last page."""
        with closing(self._file), closing(self._container):
            self._container.mux(self._stream.encode(None))


class Recording(Observer):
    """Records one call, into a file that is made once there is sound. ``clock`` is the writer's."""

    def __init__(self, path: Path, writer: Writer, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._writer = writer
        self._clock = clock
        self._began = clock()
        self._ended: float | None = None
        self._added = self._given_up = False
        self._hurries = False  # much waits, and the writer was asked not to wait for its next turn
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()
        self._kept = self._placed = 0  # bytes: each is changed on one thread only
        # What follows is touched on the writer's thread only.
        self._file: OpusFile | None = None
        self._caller, self._assistant = Track(), Track()
        self._resamplers: dict[tuple[str, int], VoiceResampler] = {}
        self._written = 0

    # --- on the event loop -----------------------------------------------------------------------

    def heard(self, samples: Float32) -> None:
        self._keep(samples.nbytes, self._put_heard, samples)

    def played(self, samples: Int16, rate: int) -> None:
        self._keep(samples.nbytes, self._put_played, samples, rate)

    def queued(self, item_id: str, samples: Int16, rate: int) -> None:
        self._keep(samples.nbytes, self._put_queued, item_id, samples, rate)

    def stopped(self, item_id: str, audio_end_ms: int) -> None:
        if self._added:
            self._keep(0, self._put_stop, item_id, audio_end_ms)

    def closed(self, reason: str) -> None:
        self._ended = self._clock()

    def _keep(self, size: int, put: Callable[..., None], *arguments: Any) -> None:
        if self._given_up:
            return
        if not self._added:
            self._added = True
            self._writer.begin(self._path)
            self._writer.add(self)
        size += _OVERHEAD
        if self._kept - self._placed + size > _MOST_BYTES:
            self._give_up("the disk is too slow")
        else:
            self._kept += size
            self._waiting.append((partial(put, self._place(self._clock()), *arguments), size))
            if self._kept - self._placed > _MOST_BYTES // 8 and not self._hurries:
                self._hurries = True
                self._writer.do(self._put_all)

    # --- on the writer's thread ------------------------------------------------------------------

    def write(self, now: float) -> bool:
        """See :class:`server.records.writer.Writes`."""
        try:
            return self._write(now)
        except (OSError, av.FFmpegError) as error:
            self._give_up(error)
            with suppress(OSError, av.FFmpegError):
                if self._file is not None:
                    self._file.close()
            return False

    def _write(self, now: float) -> bool:
        ended = self._ended  # read first: whatever came before the end is waiting by now
        self._put_all()
        if self._caller.overfull or self._assistant.overfull:
            self._writer.give_up(self._path, "sound was left out that came far ahead of the clock")
        if self._file is None:
            self._file = OpusFile(self._path)
        until = self._place(now - LAG)
        if ended is not None:
            self._assistant.stop(self._place(ended))
            until = max(self._place(ended), self._caller.end) + _FRAME - 1
        frames = (until - self._written) // _FRAME
        if (n := min(frames, _TURN) * _FRAME) > 0:
            self._file.write(self._caller.take(n), self._assistant.take(n))
            self._written += n
        if not self._given_up and (ended is None or frames > _TURN):
            return True
        self._file.close()
        self._writer.end(self._path)
        return False

    def _put_all(self) -> None:
        self._hurries = False
        waiting = self._waiting
        while waiting:
            put, size = waiting.popleft()
            put()
            self._placed += size

    def _place(self, at: float) -> int:
        return round((at - self._began) * RATE)

    def _put_heard(self, now: int, samples: Float32) -> None:
        sound = (np.clip(samples, -1, 1) * 32767).astype(np.int16)
        self._caller.arrived(self._converted("caller", sound, EAR_RATE), now)

    def _put_played(self, now: int, samples: Int16, rate: int) -> None:
        self._assistant.began(self._converted("assistant", samples, rate), now)

    def _put_queued(self, now: int, item_id: str, samples: Int16, rate: int) -> None:
        self._assistant.queued(self._converted("assistant", samples, rate), now, item_id)

    def _put_stop(self, now: int, item_id: str, audio_end_ms: int) -> None:
        if item_id:
            self._assistant.shorten(item_id, audio_end_ms * RATE // 1000)
        else:
            self._assistant.stop(now)

    def _converted(self, side: str, samples: Int16, rate: int) -> Int16:
        if rate == RATE:
            return samples
        resampler = self._resamplers.setdefault((side, rate), VoiceResampler(RATE))
        return resampler.convert(samples, rate)

    def _give_up(self, error: object) -> None:
        if not self._given_up:
            self._given_up = True
            self._waiting = deque()
            self._writer.give_up(self._path, error)
