from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from units.engines.kokoro_onnx import FIRST, FRAME, LEAST, LONGEST, MARGIN, SLACK, joined, stretches

LOUD = np.ones(2000, np.float32)


@pytest.mark.parametrize("end", [6, 30, FIRST + SLACK + MARGIN, 60, 100, 500, 2000])
def test_stretches_cover_everything_once_and_grow(end: int) -> None:
    cuts = stretches(LOUD, 5, end)
    assert cuts[0] == 5
    assert cuts[-1] == end
    lengths = np.diff(cuts)
    assert (lengths > 0).all()
    assert lengths[0] <= FIRST + SLACK + MARGIN
    assert lengths.max() <= LONGEST + 2 * SLACK + MARGIN
    assert len(lengths) == 1 or lengths.min() >= LEAST


def test_stretches_meet_where_the_voice_is_quietest() -> None:
    loudness = LOUD.copy()
    loudness[FIRST + 3] = 0.1
    assert stretches(loudness, 0, 100)[1] == FIRST + 3


def test_stretches_joined_are_the_whole() -> None:
    """Each stretch overlaps its neighbours by two fades, as a model makes it."""
    whole = np.sin(np.arange(20 * FRAME) / 50).astype(np.float32)
    fade = FRAME // 4
    cuts = [0, 7 * FRAME, 12 * FRAME, 20 * FRAME]
    heard, before = [], np.zeros(0, np.float32)
    for start, stop in pairwise(cuts):
        last = stop == cuts[-1]
        made = whole[max(start - fade, 0) : stop if last else stop + fade]
        sound, before = joined(before, made, last)
        heard.append(sound)
    np.testing.assert_allclose(np.concatenate(heard), whole, atol=1e-6)
