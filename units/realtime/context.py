"""How much of a conversation the model is shown: sizes in tokens, and what is left out when it is too long.

A token is what the model counts in; nobody here knows how it counts, so sizes are estimates on the safe side:
three bytes of UTF-8 are a token, and every digit is one more. English needs two thirds of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from units.messages import Message, Tool, ToolCall, ToolResult

Entry = Message | ToolCall | ToolResult

BYTES_PER_TOKEN = 3
ENTRY_TOKENS = 4
"""What a chat template puts around an entry."""
IMAGE_TOKENS = 800


def tokens(entries: Iterable[Entry | Tool]) -> int:
    """Estimated size of ``entries``."""
    return sum(map(_tokens, entries))


def text_tokens(text: str) -> int:
    """Estimated size of ``text``."""
    size = len(text.encode(errors="surrogatepass"))
    return -(-size // BYTES_PER_TOKEN) + sum(map(text.count, "0123456789"))


def too_old(history: Sequence[Entry], most: int) -> int:
    """How many entries at the front of ``history`` must go so that at most ``most`` tokens are left.

    What is left begins with something that the user said, never with a part of an answer; the last thing that
    the user said, and all after it, stays.
    """
    sizes = list(map(_tokens, history))
    turns = [
        index for index, entry in enumerate(history) if isinstance(entry, Message) and entry.role == "user"
    ]
    if sum(sizes) <= most or not turns:
        return 0
    return next((turn for turn in turns if sum(sizes[turn:]) <= most), turns[-1])


def _tokens(entry: Entry | Tool) -> int:
    match entry:
        case Message(_, text, images):
            return ENTRY_TOKENS + text_tokens(text) + IMAGE_TOKENS * len(images)
        case ToolCall(_, name, arguments):
            return ENTRY_TOKENS + text_tokens(name) + text_tokens(arguments)
        case ToolResult(_, output):
            return ENTRY_TOKENS + text_tokens(output)
        case Tool(name, description, parameters):
            return ENTRY_TOKENS + text_tokens(name) + text_tokens(description) + text_tokens(parameters)
