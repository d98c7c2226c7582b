"""The default language model: llama.cpp in this process, spoken to as if it were a remote server.

``xllamacpp`` brings llama.cpp's own OpenAI-compatible server, with several slots and prompt caching,
in a wheel. It listens on loopback behind a random key, and :class:`ChatCompletions` does the rest, so
that local and hosted models share one code path.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import xllamacpp

from units.engines.base import EngineSettings, EngineUnavailable
from units.engines.chat import talk_only, without_images
from units.engines.chat_completions import ChatCompletions
from units.engines.openai_stream import Patience
from units.engines.remote_llm import Piece
from units.messages import Generate
from units.models import ModelError, ModelStore

logger = logging.getLogger(__name__)

MODEL = "qwen2.5-coder-0.5b-instruct"
SLOTS = 4
"""Conversations answered at once, each with its own cached prompt."""
CONTEXT_TOKENS = 3072
"""What the model is shown at most, unless the settings say otherwise."""
ANSWER_TOKENS = 1024
"""Where a small model that has begun to ramble is stopped, unless the request says otherwise."""
BATCH_TOKENS = 128
"""How much of a prompt is read at a time. Nothing can be cancelled, and no other conversation served, in
between: about a second on two cores."""
REUSE_TOKENS = 32
"""Runs of at least this many tokens are kept when older turns are cut out before them."""
SIMILARITY = 0.01
"""Part of a prompt that must be the beginning of a cached one for that to be used. Little more than the
instructions is, once older turns were cut out; with llama.cpp's own 0.1 all the rest was read again, for ten
seconds and more."""
PROMPT_CACHE_MIB = 256
"""For prompts that had to leave their slot, such as that of a conversation with its tools taken away."""

PATIENCE = Patience(first=120.0, between=60.0)
"""A busy machine is slow, but there is no network here that could lose an answer."""
NICE = 19
"""Priority of llama.cpp's threads on Linux: writing ahead waits while the caller is being understood or the
voice is at work, since both are what the caller waits for."""
SAMPLING: dict[str, Any] = {
    "temperature": 0.3,
    "top_p": 0.9,
    "repeat_penalty": 1.05,
    "seed": 1,
    "cache_prompt": True,
}
"""Sent with every request. Cool and seeded: a voice has no use for variety at the price of sense."""


class LlamaCpp:
    """A GGUF model on this machine.

    ``settings.model`` is a name in the model store or the path of a .gguf file (or of a folder that
    holds one). Engines of one model share one server.
    """

    def __init__(self, settings: EngineSettings) -> None:
        path = model_file(settings)
        self.context_tokens = settings.context or CONTEXT_TOKENS
        self._server: LocalServer | None = shared_server(path, settings.device, self.context_tokens)
        local = dataclasses.replace(
            settings, model=path.stem, base_url=self._server.base_url, api_key=self._server.api_key
        )
        self._chat = ChatCompletions(local, PATIENCE, extra=SAMPLING, loopback=True)
        _engines.add(self)

    def warm(self) -> None:
        """Make one tiny real call. Raises EngineUnavailable when it fails."""
        self._chat.warm()

    def close(self) -> None:
        """Break off what is being answered and stop the server, unless another engine uses it."""
        self._chat.close()
        self._server = None

    def prepare(self, request: Generate) -> None:
        """Read the prompt into the cache. Cancelling the ambient scope stops it. Raises EngineError."""
        for _ in self.generate(dataclasses.replace(request, max_output_tokens=1)):
            pass

    def generate(self, request: Generate) -> Iterator[Piece]:
        """Stream the answer. Closing the iterator, or cancelling the ambient scope, stops the model."""
        with closing(self._chat.generate(talk_only(without_images(request)))) as answer:  # type: ignore[type-var]
            yield from answer


class LocalServer:
    """A running llama.cpp server on loopback; it stops when the last reference goes."""

    def __init__(self, path: Path, device: str, context: int) -> None:
        self.api_key = secrets.token_urlsafe(24)
        params = parameters(path, device, self.api_key, context)
        try:
            with ThreadPoolExecutor(1, "llama.cpp starter") as executor:
                self._native = executor.submit(_start, params).result()
        except RuntimeError as error:
            raise EngineUnavailable(
                f"llama.cpp could not load {path} ({error}); is it a complete GGUF file?"
            ) from error
        self.base_url = f"{self._native.listening_address}/v1"
        logger.info("llama.cpp serves %s at %s", path.name, self.base_url)


def _start(params: Any) -> Any:
    """Start the server from a thread of low priority: on Linux those that it starts inherit it."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    return xllamacpp.Server(params)


_lock = threading.Lock()
_servers: WeakValueDictionary[tuple[Path, int], LocalServer] = WeakValueDictionary()
_engines: WeakSet[LlamaCpp] = WeakSet()


def shared_server(path: Path, device: str, context: int) -> LocalServer:
    """The server of this model file, started if there is none. Raises EngineUnavailable."""
    with _lock:
        server = _servers.get((path, context))
        if server is None:
            server = _servers[path, context] = LocalServer(path, device, context)
        return server


@atexit.register
def _close_all() -> None:
    # llama.cpp's threads must not outlive the interpreter, and stop only once nobody listens to them.
    for engine in list(_engines):
        engine.close()


def model_file(settings: EngineSettings) -> Path:
    """The .gguf file that ``settings`` mean. Raises EngineUnavailable saying what to do."""
    try:
        found = ModelStore(settings.models_dir).locate(settings.model or MODEL)
    except ModelError as error:
        raise EngineUnavailable(str(error)) from error
    if found.is_dir():
        inside = sorted(found.glob("*.gguf"))
        if not inside:
            raise EngineUnavailable(f"There is no .gguf file in {found}; name one with --llm-model.")
        found = inside[0]
    return found.resolve()


def parameters(path: Path, device: str, api_key: str, context: int = CONTEXT_TOKENS) -> Any:
    """llama.cpp's parameters for a voice: several short conversations, low latency, nothing exposed."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [api_key]
    params.ui = False
    params.endpoint_slots = False
    params.use_jinja = True
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * (context + ANSWER_TOKENS)
    params.n_predict = ANSWER_TOKENS
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.n_cache_reuse = REUSE_TOKENS
    params.slot_prompt_similarity = SIMILARITY
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.verbosity = -1
    if device == "cpu":
        params.n_gpu_layers = 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    params.cpuparams_batch.n_threads = params.cpuparams.n_threads = cores
    for work in (params.cpuparams, params.cpuparams_batch):
        # Polling threads would take the cores from the voice that speaks meanwhile.
        work.poll = 0
    return params
