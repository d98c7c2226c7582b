"""Speech to test with: the LibriVox clips of Debian's ``pocketsphinx-testdata``, and made-up sounds."""

from __future__ import annotations

import re
import subprocess
import wave
from pathlib import Path

import numpy as np

from units.messages import EAR_RATE, Float32

FOLDER = Path("/usr/share/pocketsphinx/test/data/librivox")


def load(path: Path) -> Float32:
    """Samples of a 16-bit mono WAV file at 16 kHz, float32 in [-1, 1]."""
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (EAR_RATE, 1, 2)
        raw = file.readframes(file.getnframes())
    samples: Float32 = np.frombuffer(raw, np.int16).astype(np.float32) / np.float32(32768)
    return samples


def _clips() -> list[tuple[Path, str]]:
    text = (FOLDER / "transcription").read_text()
    found = re.findall(r"<s> (.*) </s> \((.*)\)", text)
    # The reader says "a more amiable woman"; the transcript has a slip.
    return [
        (FOLDER / f"{name}.wav", words.replace("more a amiable", "more amiable")) for words, name in found
    ]


CLIPS: list[tuple[Path, str]] = _clips() if FOLDER.exists() else []
"""Five real clips of 3.0 to 7.1 s at 16 kHz and what is said in them, in lower case."""


def at_peak(samples: Float32, dbfs: float) -> Float32:
    """``samples`` scaled so that the loudest one is at ``dbfs``."""
    scaled: Float32 = (samples / np.abs(samples).max() * 10 ** (dbfs / 20)).astype(np.float32)
    return scaled


def silence(seconds: float) -> Float32:
    """Digital silence at 16 kHz."""
    return np.zeros(int(seconds * EAR_RATE), np.float32)


def without_pauses(samples: Float32, longest: float = 0.4, level: float = 0.01) -> Float32:
    """``samples`` at 16 kHz with every silence (below ``level``) cut down to ``longest`` seconds."""
    step = EAR_RATE // 100
    frames = samples[: samples.size // step * step].reshape(-1, step)
    if not frames.size:
        return samples
    near = np.ones(round(longest / 0.01) | 1)
    kept = np.convolve(np.abs(frames).max(axis=1) > level, near, "same") > 0
    return np.ascontiguousarray(frames[kept].ravel())


def pink_noise(seconds: float, rms_dbfs: float, seed: int = 0) -> Float32:
    """Noise with equal energy in every octave, at 16 kHz."""
    size = int(seconds * EAR_RATE)
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(size))
    spectrum /= np.sqrt(np.maximum(1, np.arange(spectrum.size)))
    noise = np.fft.irfft(spectrum, size)
    scaled: Float32 = (noise / np.sqrt((noise**2).mean()) * 10 ** (rms_dbfs / 20)).astype(np.float32)
    return scaled


def hum(seconds: float, level: float = 0.05) -> Float32:
    """Mains hum: 50 Hz and two overtones, at 16 kHz."""
    t = np.arange(int(seconds * EAR_RATE)) / EAR_RATE
    tones = np.sum([np.sin(2 * np.pi * 50 * k * t) / k for k in (1, 2, 3)], axis=0)
    made: Float32 = (level * tones).astype(np.float32)
    return made


def clicks(seconds: float, every_s: float = 0.55, seed: int = 0) -> Float32:
    """Keys being struck: 2.5 ms bursts of noise, at 16 kHz."""
    made = silence(seconds)
    noise = np.random.default_rng(seed).standard_normal(40).astype(np.float32)
    for start in range(EAR_RATE // 4, made.size - 40, int(every_s * EAR_RATE)):
        made[start : start + 40] = noise * 0.3
    return made


def say(text: str, folder: Path, *, speed: int = 150) -> Float32:
    """``text`` spoken by espeak-ng at ``speed`` words a minute, 16 kHz, without silence around it."""
    spoken, path = folder / "spoken.wav", folder / "16k.wav"
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", str(speed), "-w", spoken, text], check=True)
    subprocess.run(["sox", spoken, "-r", str(EAR_RATE), "-c", "1", "-b", "16", path], check=True)
    samples = load(path)
    loud = np.flatnonzero(np.abs(samples) > 0.02)
    return samples[loud[0] : loud[-1] + 1]
