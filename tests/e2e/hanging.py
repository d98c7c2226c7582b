"""``python -m tests.e2e.hanging serve ...``: as :mod:`tests.protocol.tapped`, with one language model more.

That one, ``hanging``, is the scripted one, but that it does not come back once it reads ``[[hang]]``.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from server.__main__ import main
from tests.protocol.tap import Tap
from tests.protocol.tapped import note
from units import register
from units.engines.scripted import ScriptedLLM
from units.messages import Finish, Generate, Message, Token, ToolCall


class HangingLLM(ScriptedLLM):
    def generate(self, request: Generate) -> Iterator[Token | ToolCall | Finish]:
        last = request.history[-1]
        if isinstance(last, Message) and "[[hang]]" in last.text:
            threading.Event().wait()
        yield from super().generate(request)


if __name__ == "__main__":
    register("llm", "hanging", HangingLLM)
    with Tap(note).open():
        sys.exit(main())
