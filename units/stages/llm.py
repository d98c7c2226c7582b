"""The language model: a request in, text and calls out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from units.engines.base import EngineError, LanguageModel
from units.messages import Begin, Finish, Generate, Prepare, Say, Token, ToolCall
from units.observe import timed

logger = logging.getLogger(__name__)


def answer(
    requests: Iterable[Generate | Say | Prepare], engine: LanguageModel
) -> Iterator[Begin | Token | ToolCall | Finish]:
    """Yield each answer as the engine streams it, opened by Begin and closed by one Finish."""
    for request in requests:
        if isinstance(request, Prepare):
            _prepare(request, engine)
            continue
        yield Begin(request.voice)
        if isinstance(request, Say):
            yield Token(request.text)
            yield Finish()
            continue
        finish, called = Finish(), False
        with timed("llm") as watch:
            tokens = engine.generate(request)
            try:
                for piece in tokens:
                    watch.got()
                    if isinstance(piece, Finish):
                        finish = piece
                        watch.amount = finish.output_tokens
                    elif isinstance(piece, Token) or request.parallel_tool_calls or not called:
                        yield piece
                        called = called or isinstance(piece, ToolCall)
            finally:
                _close(tokens)
        yield finish


def _prepare(request: Prepare, engine: LanguageModel) -> None:
    prepare = getattr(engine, "prepare", None)
    if prepare is None:
        return
    try:
        prepare(request.request)
    except EngineError as error:
        logger.debug("the model was not prepared: %s", error)


def _close(tokens: Iterator[object]) -> None:
    """Closing the engine's iterator is how it learns that nobody wants the rest."""
    close = getattr(tokens, "close", None)
    if close is not None:
        close()
