"""Tool calls that a model writes as text, found while the text streams.

Small local models answer with ``{"name": ..., "arguments": ...}`` bare, in a code fence or in tags such as
``<tool_call>``, ``<tools>`` or ``<json>``, whatever their template says. :func:`split_tool_text` turns that
into calls.

Text is held back only from the first character that could open such a call until it is a call or
cannot become one any more; everything else passes unchanged and at once.
"""

from __future__ import annotations

import ast
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from units.messages import Finish, Token, ToolCall

_OPENER = re.compile(r"(?:<[a-z_]{1,16}>|```[a-z_]*)?\s*(?:```[a-z_]*)?\s*")
_START = re.compile(r"[<`{\[]")
_KEYS = (
    "name",
    "function",
    "function_name",
    "tool",
    "tool_name",
    "tool_calls",
    "type",
    "arguments",
    "parameters",
    "id",
)
_ARGUMENTS = ("arguments", "parameters", "args", "input")


def new_call_id() -> str:
    """A name for a call that came without one."""
    return f"call_{uuid.uuid4().hex[:24]}"


def split_tool_text(
    items: Iterable[Token | ToolCall | Finish],
    names: Iterable[str],
    new_id: Callable[[], str] = new_call_id,
) -> Iterator[Token | ToolCall | Finish]:
    """``items`` with calls of the functions ``names`` taken out of the text.

    Words after such a call are dropped: a model that has not seen the result is only guessing it.
    """
    known = frozenset(names)
    if not known:
        yield from items
        return
    pending, called = "", False
    for item in chain(items, (None,)):
        text = item.text if isinstance(item, Token) else ""
        found, pending = _read(pending + text, known, ended=not isinstance(item, Token))
        for piece in found:
            if isinstance(piece, _Call):
                called = True
                yield ToolCall(new_id(), piece.name, piece.arguments)
            elif not called:
                yield Token(piece)
        if item is not None and not isinstance(item, Token):
            yield item


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What the text from an opening character on is: ``length`` characters of calls, or of plain text."""

    length: int
    calls: tuple[_Call, ...] = ()


def _read(text: str, names: frozenset[str], *, ended: bool) -> tuple[list[str | _Call], str]:
    """What can be told of ``text``, and the rest that has to wait."""
    found: list[str | _Call] = []
    while text:
        start = _START.search(text)
        plain = start.start() if start else len(text)
        verdict = _judge(text[plain:], names, ended) if start else _Verdict(0)
        if verdict is None:
            return _with(found, text[:plain]), text[plain:]
        end = plain + verdict.length
        _with(found, text[:plain] if verdict.calls else text[:end])
        found.extend(verdict.calls)
        text = text[end:]
    return found, ""


def _with(found: list[str | _Call], text: str) -> list[str | _Call]:
    """``found`` with ``text`` behind it, joined to text that is there already."""
    if text and found and isinstance(found[-1], str):
        found[-1] += text
    elif text:
        found.append(text)
    return found


def _judge(text: str, names: frozenset[str], ended: bool) -> _Verdict | None:
    """The verdict on ``text``, which begins with an opening character; None while it is open."""
    if not ended and _may_open(text):
        return None
    opener = _OPENER.match(text)
    body = opener.end() if opener else 0
    if body == len(text) and not ended:
        return None
    if not _may_be_call(text[body:], names):
        return _Verdict(max(1, len(text[:body].rstrip())))
    length = _json_length(text[body:])
    if length is None and not ended:
        return None
    calls = _calls(text[body:] if length is None else text[body : body + length], names)
    end = len(text) if length is None else body + length
    return _Verdict(end, calls)


def _may_open(text: str) -> bool:
    """Whether ``text`` is the beginning of a tag or of a fence that is not complete yet."""
    return re.fullmatch(r"<[a-z_]{0,16}|`{1,2}|```[a-z_]*", text) is not None


def _may_be_call(text: str, names: frozenset[str]) -> bool:
    """Whether ``text`` begins like a JSON object (or a list of them) with a key that a call has."""
    head = re.match(r"(?:\[\s*)?(?:\{\s*(?:([\"'])(\w*)(.?))?)?", text, re.DOTALL)
    if not head or not head[0]:
        return False
    if head[1] is None:
        return head.end() == len(text)
    keys = (*_KEYS, *names)
    return head[2] in keys if head[3] else any(key.startswith(head[2]) for key in keys)


def _json_length(text: str) -> int | None:
    """Length of the JSON value that ``text`` begins with; None when it is not complete."""
    depth, quote, escaped = 0, "", False
    for index, character in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == quote:
                quote = ""
        elif character == '"':
            quote = character
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if depth <= 0:
                return index + 1
    return None


def _calls(text: str, names: frozenset[str]) -> tuple[_Call, ...]:
    value = _lenient_json(text)
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    candidates = value if isinstance(value, list) else [value]
    calls = [_one_call(candidate, names) for candidate in candidates]
    return tuple(call for call in calls if call is not None)


def _one_call(value: object, names: frozenset[str]) -> _Call | None:
    if not isinstance(value, dict):
        return None
    if len(value) == 1 and (name := next(iter(value))) in names:
        return _Call(name, _arguments(value[name]))
    inner = value.get("function")
    if isinstance(inner, dict):
        return _one_call(inner, names)
    spelled = (value.get(key) for key in ("name", "function", "function_name", "tool_name", "tool"))
    named = next((name for name in spelled if isinstance(name, str) and name in names), None)
    if named is None:
        return None
    given = next((value[key] for key in _ARGUMENTS if key in value), None)
    return _Call(named, _arguments(given))


def _arguments(value: object) -> str:
    if isinstance(value, str):
        value = _lenient_json(value)
    return json.dumps(value if isinstance(value, dict) else {}, ensure_ascii=False)


def _lenient_json(text: str) -> Any:
    """The value in ``text``: JSON, also with brackets missing or a comma too many, or a Python literal."""
    text = text.strip()
    for attempt in (text, re.sub(r",\s*([}\]])", r"\1", text), *_closed(text)):
        try:
            return json.loads(attempt, strict=False)
        except (ValueError, RecursionError):
            continue
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _closed(text: str) -> Iterator[str]:
    """``text``, which may end in a fence or tag, with up to three missing brackets added."""
    text = re.sub(r"\s*(?:`+|</?\w*>?)\s*$", "", text)
    for count in range(1, 4):
        yield text + "}" * count
        yield text + "}" * count + "]"
