"""What every language model behind an OpenAI-compatible server has in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing

import openai

from units.engines.base import EngineError, EngineSettings, EngineUnavailable
from units.engines.chat import without_images
from units.engines.openai_stream import Patience, Server
from units.messages import Finish, Generate, Message, Token, ToolCall

logger = logging.getLogger(__name__)

Piece = Token | ToolCall | Finish

CONTEXT_TOKENS = 28_672
"""What a model is shown when nobody says how much it can read: what OpenAI's realtime models take."""


class RemoteLanguageModel(ABC):
    """A model on a server; constructing it talks to nobody.

    ``settings.base_url`` up to and including ``/v1``; empty means OpenAI. ``settings.model`` empty
    means the first model that the server lists.
    """

    def __init__(
        self, settings: EngineSettings, patience: Patience | None = None, *, loopback: bool = False
    ) -> None:
        self._server = Server(settings, patience or Patience(), loopback=loopback)
        self._model = settings.model
        self._blind = False  # the server refuses images
        self.context_tokens = settings.context or CONTEXT_TOKENS

    def generate(self, request: Generate) -> Iterator[Piece]:
        """Stream the answer. Closing the iterator, or cancelling the ambient scope, stops the server."""
        if self._blind or not any(isinstance(item, Message) and item.images for item in request.history):
            yield from self._answer(without_images(request))
            return
        begun = False
        try:
            with closing(self._answer(request)) as answer:  # type: ignore[type-var]
                for piece in answer:
                    begun = True
                    yield piece
        except EngineError as error:
            if begun or not _is_about_images(error.__cause__):
                raise
            yield from self._answer(without_images(request))
            logger.warning("The language model takes no images; it is told of them in words from now on")
            self._blind = True

    @abstractmethod
    def _answer(self, request: Generate) -> Iterator[Piece]:
        """Stream the answer; as :meth:`generate`, from a model that takes images if there are any."""

    def warm(self) -> None:
        """Make one tiny real call. Raises EngineUnavailable when it fails."""
        try:
            for _ in self.generate(Generate(history=(Message("user", "Hi"),), max_output_tokens=16)):
                pass
        except EngineError as error:
            raise EngineUnavailable(str(error)) from error

    def close(self) -> None:
        """Break off every answer that is still coming, and close what is idle."""
        self._server.close()

    def named_model(self) -> str:
        """The model to ask for. Raises EngineUnavailable when none is named and the server lists none."""
        if not self._model:
            models = self._server.ask(lambda client: [model.id for model in client.models.list().data or []])
            if not models:
                raise EngineUnavailable(
                    f"The language model server at {self._server.host} lists no models; "
                    "load one there, or name one with --llm-model."
                )
            self._model = models[0]
            logger.info("Using the model %s of %s", self._model, self._server.host)
        return self._model


def _is_about_images(error: BaseException | None) -> bool:
    """Whether a server that was shown an image may have refused because of it."""
    refused = (openai.BadRequestError, openai.UnprocessableEntityError)
    return isinstance(error, refused) or (
        isinstance(error, openai.InternalServerError) and "image" in str(error.body)
    )
