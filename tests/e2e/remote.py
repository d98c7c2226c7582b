"""Processes in other namespaces: callers that do as they are told, and servers of other kinds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any


class Caller:
    """A process that plays scenarios of :mod:`tests.e2e.relayed_caller`, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, scenario: str, **arguments: Any) -> Any:
        """What came of a scenario."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([scenario, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer["failed"]
        return answer["result"]


@contextmanager
def calling(prefix: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[Caller]:
    """A caller, started with ``prefix`` in front."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "tests.e2e.relayed_caller"],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Caller(process)


@contextmanager
def running(command: Sequence[str], ready: str) -> Iterator[None]:
    """A process, from when it has printed ``ready``."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        printed = ""
        while ready not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        drain = threading.Thread(target=process.stdout.read)
        drain.start()
        yield
    finally:
        process.terminate()
        process.wait(10)
