"""All server events on their way out of this process, held against the schemas and the order of the protocol.

There are three ways out, and none goes around them: the text of a WebSocket, the text of a data channel, and
the transport that a test gives to a session itself. Every connection has a checker of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from aiohttp import web
from aiortc import RTCDataChannel

from server.channel import EventChannel
from server.socket import SocketTransport
from tests.protocol.order import OrderChecker
from tests.protocol.validate_event import Validator
from units.session import Session, Transport

Json = dict[str, Any]


class Problems(list[str]):
    """What was wrong with the events of one connection; empty when all is well.

    ``transport`` is a name of the specification; ``late``: the connection joined a session that had begun;
    ``report`` is called with each problem.
    """

    def __init__(
        self,
        transport: str | None = None,
        *,
        late: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._report = report
        self._validator = Validator()
        self._order = OrderChecker(late=late)

    def look_at(self, event: Json) -> None:
        """One event that is not written down yet."""
        self.read(json.dumps(event, ensure_ascii=False))

    def read(self, text: str) -> None:
        """One message, as it is on the wire."""
        try:
            text.encode()
            event = json.loads(text, parse_constant=_refuse)
            self._note(*self._validator.check(event, transport=self._transport))
            self._order.feed(event)
        except AssertionError as error:
            self._note(str(error))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._note(f"{error!r} in {text[:200]}")

    def finish(self) -> None:
        """Nothing more is expected."""
        try:
            self._order.finish()
        except AssertionError as error:
            self._note(str(error))

    def _note(self, *problems: str) -> None:
        self.extend(problems)
        if self._report is not None:
            for problem in problems:
                self._report(problem)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_known: WeakKeyDictionary[Any, Problems] = WeakKeyDictionary()


def problems_of(transport: Any) -> Problems:
    """What was wrong with the events that a test's own transport got."""
    return _known[transport]


class Tap:
    """Checks while it is :meth:`open`; tells ``report`` of every problem."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    @contextmanager
    def open(self) -> Iterator[None]:
        socket = web.WebSocketResponse
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "prepare", self._preparing(socket.prepare))
            patch.setattr(socket, "send_str", self._sending(socket.send_str))
            patch.setattr(EventChannel, "attach", self._attaching(EventChannel.attach))
            patch.setattr(RTCDataChannel, "send", self._sending(RTCDataChannel.send))
            patch.setattr(Session, "attach", self._opening(Session.attach))
            patch.setattr(Session, "join", self._opening(Session.join, late=True))
            yield

    def _preparing(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        def prepared(socket: web.WebSocketResponse, request: web.BaseRequest) -> Any:
            if "call_id" in request.query:
                self._watch(socket, "webrtc", late=True)
            elif request.path.startswith("/v1/"):
                self._watch(socket, "websocket")
            return prepare(socket, request)

        return prepared

    def _attaching(self, attach: Callable[..., Any]) -> Callable[..., Any]:
        def attached(transport: EventChannel, channel: RTCDataChannel) -> Any:
            self._watch(channel, "webrtc")
            return attach(transport, channel)

        return attached

    def _sending(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def sent(end: Any, text: Any, *more: Any, **options: Any) -> Any:
            if end in _known:
                _known[end].read(text)
            return send(end, text, *more, **options)

        return sent

    def _opening(self, begin: Callable[..., Any], *, late: bool = False) -> Callable[..., Any]:
        def begun(session: Session, transport: Any, *more: Any) -> Any:
            if not isinstance(transport, SocketTransport | EventChannel):
                plays_audio = late or getattr(transport, "plays_audio", True)
                self._watch(transport, "webrtc" if plays_audio else "websocket", late=late)
                transport.send = self._noting(transport, transport.send)
            return begin(session, transport, *more)

        return begun

    def _noting(self, transport: Transport, send: Callable[[Json], None]) -> Callable[[Json], None]:
        problems = _known[transport]

        def noted(event: Json) -> None:
            problems.look_at(event)
            send(event)

        return noted

    def _watch(self, end: Any, transport: str, *, late: bool = False) -> None:
        _known[end] = Problems(transport, late=late, report=self._report)
