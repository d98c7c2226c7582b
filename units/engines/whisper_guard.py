"""Where Whisper needs a guard: how much to encode, how many tokens to allow, loops, phantom words.

Pure functions, shared by the engines that run Whisper themselves. Whisper always looks at 30 s, most of
them padding. Encoding only what was said, and some padding, takes a third of the time; with too little
padding the decoder says the sentence twice now and then. Measured with the base model over 40 variants
of five clips (silence in front, quieter, noisier): sentences said twice in 2 of 40 with a window of at
least 7.5 s, none with 10 s. The guard catches the rest, which are then encoded in full.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from math import ceil

import numpy as np

from units.messages import EAR_RATE, Float32

FULL_S = 30.0
"""What Whisper was trained to look at, in seconds."""
SHORTEST_S = 10.0
TAIL_S = 3.0
"""Padding after the utterance, which is what tells the decoder to stop."""

UNSPACED = ("ja", "lo", "my", "th", "yue", "zh")
"""Languages whose pieces are joined without a space."""
NOISE = "nn"
"""Nynorsk: what Whisper takes noise for, and then is sure of words that nobody said."""

_PIECE_S = (18.0, FULL_S - TAIL_S)
_LEAD_S = 0.3
_SILENCE = 10 ** (-75 / 20)
_GRAM = 5


def window_s(samples: int) -> float:
    """Seconds to encode for an utterance of ``samples`` at 16 kHz."""
    return min(FULL_S, max(SHORTEST_S, samples / EAR_RATE + TAIL_S))


def token_cap(samples: int, language: str) -> int:
    """Most tokens that ``samples`` at 16 kHz may become; more is a loop.

    Fast English is 7 tokens a second; scripts that the vocabulary knows badly take three times that.
    """
    per_second = 10 if language == "en" else 25
    return min(440, 16 + ceil(per_second * samples / EAR_RATE))


def may_loop(tokens: Sequence[int], cap: int) -> bool:
    """Whether a transcript is worth a second look: it was cut off, or says five tokens twice."""
    grams = [tuple(tokens[i : i + _GRAM]) for i in range(len(tokens) - _GRAM + 1)]
    return len(tokens) >= cap or len(set(grams)) < len(grams)


def loops(text: str, tokens: Sequence[int], cap: int) -> bool:
    """Whether a transcript repeats itself beyond what people do: cut off, or compressed 2.4 times.

    2.4 is Whisper's own threshold; short texts are let through, since "no, no, no, no" is said.
    """
    raw = text.encode()
    return len(tokens) >= cap or (len(raw) > 120 and len(raw) > 2.4 * len(zlib.compress(raw)))


def without_repetition(text: str) -> str:
    """``text`` with every stretch of words that is said three times or more in a row said once.

    >>> without_repetition("so I went and I went and I went and")
    'so I went and'
    """
    words = text.split()
    size = 1
    while size <= len(words) // 3:
        words = _collapsed(words, size)
        size += 1
    return " ".join(words)


def _collapsed(words: list[str], size: int) -> list[str]:
    kept: list[str] = []
    i = 0
    while i < len(words):
        block, end = words[i : i + size], i + size
        while words[end : end + size] == block:
            end += size
        if end - i >= 3 * size:
            # A loop ends where the tokens ran out, often in the middle of the block.
            end += _common(words[end:], block) if len(words) - end < size else 0
            kept += block
            i = end
        else:
            kept.append(words[i])
            i += 1
    return kept


def _common(words: list[str], block: list[str]) -> int:
    return len(words) if words == block[: len(words)] else 0


def nothing_said(no_speech: float, avg_logprob: float) -> bool:
    """Whether the words are a phantom: the model doubts that it heard speech and what was said.

    Whisper's own rule (no_speech > 0.6 and avg_logprob < -1) lets "you" on digital silence through
    (0.89, -0.6) and drops "no no no" (0.63, -0.2). Over silence, noise, hum, clicks and coughs the sum
    below is 0.89 or more with the base model; over short words, quick or noisy, 0.69 or less. One word
    repeated ten times at top speed is the known exception: it is lost.
    """
    return no_speech - 0.15 * avg_logprob > 0.77


def silent(samples: Float32) -> bool:
    """Whether ``samples`` hold nothing above -75 dBFS, so that no model need be asked."""
    return samples.size == 0 or float(np.abs(samples).max()) < _SILENCE


def padded(samples: Float32) -> Float32:
    """``samples`` with 0.3 s of silence in front if shorter than 1 s: a bare "yes" is misheard."""
    if samples.size >= EAR_RATE:
        return samples
    return np.concatenate([np.zeros(int(_LEAD_S * EAR_RATE), np.float32), samples])


def by_pieces(
    samples: Float32, language: str, hear: Callable[[Float32, str], tuple[str, str]]
) -> tuple[str, str]:
    """Words and language of ``samples``, any length; ``hear`` gives those of one padded piece.

    The language that the first piece is in holds for those after it. Raises what ``hear`` raises.
    """
    texts: list[str] = []
    for piece in pieces(samples):
        if not silent(piece):
            text, language = hear(padded(piece), language)
            texts.append(text)
    joint = "" if language in UNSPACED else " "
    return joint.join(filter(None, texts)), language


def pieces(samples: Float32) -> Iterator[Float32]:
    """Cut a long utterance where it is quietest, into pieces that fit Whisper's window with its tail."""
    shortest, longest = (int(seconds * EAR_RATE) for seconds in _PIECE_S)
    while samples.size > longest:
        cut = shortest + _quietest(samples[shortest:longest])
        yield samples[:cut]
        samples = samples[cut:]
    yield samples


def _quietest(samples: Float32) -> int:
    """Middle of the quietest 0.3 s."""
    step = EAR_RATE // 50
    frames = samples[: samples.size // step * step].reshape(-1, step)
    energy = np.convolve((frames**2).mean(axis=1), np.ones(15), "valid")
    return int((energy.argmin() + 7.5) * step)
