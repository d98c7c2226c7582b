"""Leaving out what a model thinks aloud: ``<think>…</think>`` in streamed text."""

from __future__ import annotations

import re

_OPEN = re.compile(r"<(think|thinking|thought|reasoning)>", re.IGNORECASE)
_CLOSE = re.compile(r"</(think|thinking|thought|reasoning)>\s*", re.IGNORECASE)
_LONGEST = len("</reasoning>")
_OPENINGS = ("<think>", "<thinking>", "<thought>", "<reasoning>")


class ThoughtFilter:
    """Feed it text, get back the text without thoughts. A lone "<" passes; tags may be cut anywhere."""

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._said = False

    def feed(self, text: str) -> str:
        """The part of the text so far that is certainly not a thought."""
        self._held += text
        out = ""
        while True:
            tag = _CLOSE if self._thinking else _OPEN
            match = tag.search(self._held)
            if match is None:
                return self._strip(out + self._release())
            out += "" if self._thinking else self._held[: match.start()]
            self._held = self._held[match.end() :]
            self._thinking = not self._thinking

    def finish(self) -> str:
        """What was held back, at the end of the text. A thought that was never closed stays unsaid."""
        held, self._held = self._held, ""
        return "" if self._thinking else self._strip(held)

    def _release(self) -> str:
        """Let go of everything but what could still become a tag."""
        if self._thinking:
            self._held = self._held[-_LONGEST:]
            return ""
        at = self._held.rfind("<", max(0, len(self._held) - _LONGEST))
        if at >= 0 and any(tag.startswith(self._held[at:].lower()) for tag in _OPENINGS):
            text, self._held = self._held[:at], self._held[at:]
        else:
            text, self._held = self._held, ""
        return text

    def _strip(self, text: str) -> str:
        """Models put blank lines between the thought and the answer."""
        if not self._said:
            text = text.lstrip()
            self._said = bool(text)
        return text
