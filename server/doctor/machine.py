"""Python, libraries, memory, cores, models and GPU."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from server.doctor.finding import Finding
from server.needed import needed
from server.settings import Settings
from units.engines.registry import EXTRAS
from units.models import ModelError, ModelStore

GIB = 1 << 30
LOCAL_LLMS = ("llama-cpp", "transformers")
MEMORY_GIB = {True: 1.9, False: 0.9}
"""Needed with a language model in the process, and without."""
CORES = 2
GPU_TIMEOUT_S = 60
GPU_FIX = "use NVIDIA's driver and, in a container, its toolkit and the cuda image; or --device cpu"
CGROUP = Path("/sys/fs/cgroup")


def python(running: str = platform.python_version()) -> Finding:
    """Whether the version is one that the project is made for."""
    wanted = SpecifierSet(metadata("duologue")["Requires-Python"])
    if running in wanted:
        return Finding("python", running)
    return Finding("python", f"{running} is not {wanted}", "make the virtual environment with another Python")


def extra(settings: Settings) -> str:
    """The extra that the chosen engines need; "" for none."""
    if settings.device == "cuda" and settings.tts == "kokoro":
        return "cuda"
    engines = (("stt", settings.stt), ("llm", settings.llm_backend))
    return next((EXTRAS[engine] for engine in engines if engine in EXTRAS), "")


def libraries(required: list[str] | None = None, extra: str = "") -> Finding:
    """Whether each requirement, also of ``extra``, is installed in a version that fits; none is loaded."""
    texts = (metadata("duologue").get_all("Requires-Dist") or []) if required is None else required
    wanted = [r for r in map(Requirement, texts) if r.marker is None or r.marker.evaluate({"extra": extra})]
    wrong = [(requirement, have) for requirement in wanted if (have := _misfit(requirement)) is not None]
    if not wrong:
        return Finding("libraries", f"all {len(wanted)} are there")
    said = ", ".join(f"{requirement.name} is {have}" for requirement, have in wrong)
    needs = " ".join(f"'{requirement.name}{requirement.specifier}'" for requirement, _ in wrong)
    return Finding("libraries", said, f"pip install 'duologue[{extra}]'" if extra else f"pip install {needs}")


def openmp(settings: Settings, file: str = "libgomp.so.1") -> Iterator[Finding]:
    """Whether what llama.cpp is linked with on Linux is there, which no Python package brings."""
    if settings.llm_backend != "llama-cpp" or sys.platform != "linux":
        return
    try:
        ctypes.CDLL(file)
        yield Finding("openmp", f"{file} is there")
    except OSError:
        yield Finding("openmp", f"{file} is missing", "sudo apt install libgomp1")


def _misfit(requirement: Requirement) -> str | None:
    """What is there instead of what is required; None if it fits."""
    try:
        have = version(requirement.name)
    except PackageNotFoundError:
        return "missing"
    return None if requirement.specifier.contains(have, prereleases=True) else have


def memory(settings: Settings, found: float | None = None) -> Finding:
    """Whether ``found`` bytes, by default those of the machine or the container, are enough."""
    have = (_memory() if found is None else found) / GIB
    local = settings.llm_backend in LOCAL_LLMS
    if have >= MEMORY_GIB[local]:
        return Finding("memory", f"{have:.1f} GB")
    fix = "take a machine with 2 GB or more"
    if local:
        fix += ", or a language model elsewhere (--llm-backend chat-completions)"
    return Finding("memory", f"{have:.1f} GB are too little for the models", fix)


def cores(found: float | None = None) -> Finding:
    """Whether ``found`` cores, by default those that this process may use, are enough."""
    have = _cores() if found is None else found
    if have >= CORES:
        return Finding("cores", f"{have:g}")
    fix = "give it two cores, or run the models elsewhere (--stt, --tts, --llm-backend)"
    return Finding("cores", f"{have:g} is not enough to listen, think and speak at once", fix)


def _memory() -> float:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _cgroup("memory.max")
    return min(machine, float(limit[0])) if limit and limit[0] != "max" else machine


def _cores() -> float:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup("cpu.max")
    return min(usable, int(quota[0]) / int(quota[1])) if len(quota) == 2 and quota[0] != "max" else usable


def _cgroup(name: str) -> list[str]:
    """The words of a limit of this control group (version 2, as containers have); none outside of one."""
    try:
        return (CGROUP / name).read_text(encoding="ascii").split()
    except OSError:
        return []


def models(settings: Settings, full: bool = False) -> Iterator[Finding]:
    """Whether what the engines need is in the store; ``full`` hashes every file again."""
    store = ModelStore(settings.models_dir)
    names = needed(settings)
    if not names:
        yield Finding("models", "none are needed from the store")
    for name in names:
        yield _model(store, name, settings.fetch_models, full)


def _model(store: ModelStore, name: str, fetching: bool, full: bool) -> Finding:
    check = f"model {name}"
    try:
        state = store.state(name)
        if state == "present" and full:
            store.verify(name)
    except (ModelError, OSError) as error:
        return Finding(check, str(error).rstrip("."), f"duologue models fetch {name}")
    if state == "present":
        return Finding(check, "there, hashed again" if full else "there")
    if state == "absent" and fetching:
        return Finding(check, "not there yet; the server fetches it when it starts")
    return Finding(check, f"{state} in {store.root}", f"duologue models fetch {name}")


def clock(kept: bool | None = None) -> Iterator[Finding]:
    """Whether something keeps the clock right, by default as the kernel has it, if that can tell."""
    kept = _kept_right() if kept is None else kept
    if kept is not None:
        said = "kept right over the network" if kept else "nothing keeps it right"
        fix = "set it by NTP (timedatectl set-ntp true): logins and certificates expire by it"
        yield Finding("clock of this machine", said, "" if kept else fix)


def _kept_right() -> bool | None:
    """From adjtimex(2), which says with 5 that nobody has set the clock for long."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = int(adjtimex(ctypes.create_string_buffer(512)))  # a struct timex of zeros: only look
    return None if state < 0 else state != 5


def gpu(settings: Settings) -> Iterator[Finding]:
    """Whether the engines' libraries find a GPU, if the settings ask for one, which loads the libraries."""
    if settings.device == "auto":
        there = shutil.which("nvidia-smi") is not None
        said = "NVIDIA's driver is there; --device cuda has its use checked" if there else "none"
        yield Finding("gpu", said)
    if settings.device != "cuda":
        return
    if settings.stt == "faster-whisper":
        yield gpus_counted_by("CTranslate2", "import ctranslate2 as c; print(c.get_cuda_device_count())")
    if extra(settings) and find_spec("torch"):
        yield gpus_counted_by("torch", "import torch; print(torch.cuda.device_count())")


def gpus_counted_by(library: str, counting: str) -> Finding:
    """Counts in a process of its own: a broken driver can end one."""
    check = f"gpu for {library}"
    try:
        run = [sys.executable, "-c", counting]
        done = subprocess.run(run, capture_output=True, text=True, timeout=GPU_TIMEOUT_S, check=False)
        said = (done.stdout.split() or ["0"])[-1]
    except subprocess.TimeoutExpired:
        return Finding(check, f"no answer in {GPU_TIMEOUT_S} s", GPU_FIX)
    if done.returncode:
        return Finding(check, (done.stderr.strip().splitlines() or ["it cannot be loaded"])[-1], GPU_FIX)
    return Finding(check, f"{said} found", GPU_FIX if said == "0" else "")
