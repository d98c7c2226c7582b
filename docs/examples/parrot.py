"""A language model that repeats what you say. Start it with: python parrot.py"""

from collections.abc import Iterator

from server.__main__ import main
from units import EngineSettings, register
from units.messages import Finish, Generate, Message, Token


class Parrot:
    def __init__(self, settings: EngineSettings) -> None:
        self.greeting = settings.model or "You said:"

    def generate(self, request: Generate) -> Iterator[Token | Finish]:
        said = [m.text for m in request.history if isinstance(m, Message) and m.role == "user"]
        for word in [self.greeting, *(said[-1] if said else "nothing").split()]:
            yield Token(word + " ")
        yield Finish()


register("llm", "parrot", Parrot)
if __name__ == "__main__":
    raise SystemExit(main(["serve", "--llm-backend", "parrot"]))
