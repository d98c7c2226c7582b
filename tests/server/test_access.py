"""Who is let in, over both doors, on the whole application with scripted engines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from aiohttp.test_utils import TestClient, TestServer

from server import client_secrets, doors
from server.access import _network
from server.app import MAX_BODY_BYTES, build_app
from server.keys import Key, sha256, write_keys
from server.settings import Settings
from server.socket import MAX_MESSAGE
from server.startup import STARTUP
from tests.server.fakes import Client as Phone
from units import EngineSettings, PipelineConfig, build_pipeline

SCRIPTED = EngineSettings("scripted")
UNITS = 3
CALLS, SOCKET, SECRETS = "/v1/realtime/calls", "/v1/realtime?model=any", "/v1/realtime/client_secrets"

Http = TestClient[Any, Any]
Json = dict[str, Any]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Http]:
    config = PipelineConfig(
        num_pipelines=UNITS, vad=SCRIPTED, turn=SCRIPTED, stt=SCRIPTED, llm=SCRIPTED, tts=SCRIPTED
    )
    app = build_app(Settings(**settings), build_pipeline(config))
    async with TestClient(TestServer(app)) as http:
        await app[STARTUP].loaded.wait()
        yield http


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a key for Ann, and one for Bob with limits. Each is the name, in lower case."""
    path = tmp_path / "keys.json"
    write_keys(path, [Key("Ann", sha256("ann")), Key("Bob", sha256("bob"), sessions=1, per_minute=2)])
    return path


@pytest.fixture
async def keyed(file: Path) -> AsyncIterator[Http]:
    async with serving(keys_file=file) as http:
        yield http


@pytest.fixture
async def open_to_all() -> AsyncIterator[Http]:
    async with serving() as http:
        yield http


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def asked(http: Http, method: str, path: str, **options: Any) -> tuple[int, str | None]:
    """Status, and the code of the error if there is one."""
    async with http.request(method, path, **options) as response:
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        if response.content_type != "application/json":
            return response.status, None
        return response.status, (await response.json()).get("error", {}).get("code")


async def greeted(http: Http, **options: Any) -> ClientWebSocketResponse:
    """A session over WebSocket."""
    socket = await http.ws_connect(SOCKET, **options)
    assert (await socket.receive_json(timeout=5))["type"] == "session.created"
    return socket


async def free(http: Http, units: int = UNITS) -> None:
    """Wait until so many units are."""
    async with asyncio.timeout(5):
        while http.app[STARTUP].pipeline.pool.free < units:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def served(http: Http, **options: Any) -> None:
    """A session over WebSocket, from its beginning to its end."""
    await (await greeted(http, **options)).close()
    await free(http)


async def turned_away(http: Http, url: str = SOCKET, **options: Any) -> tuple[str, int | None]:
    """Code of the error, and close code."""
    socket = await http.ws_connect(url, **options)
    error = await socket.receive_json(timeout=5)
    assert error["type"] == "error"
    assert (await socket.receive(timeout=5)).type is WSMsgType.CLOSE
    return error["error"]["code"], socket.close_code


async def refused(http: Http, url: str = SOCKET, **options: Any) -> int:
    """Status of a handshake that fails."""
    with pytest.raises(WSServerHandshakeError) as caught:
        await http.ws_connect(url, **options)
    return caught.value.status


async def minted(http: Http, key: str) -> str:
    async with http.post(SECRETS, json={}, headers=bearer(key)) as response:
        assert response.headers["Cache-Control"] == "no-store"
        return str((await response.json())["value"])


OPEN = {"/healthz", "/readyz", "/notice.json", "/{path}"}
"""Routes for anybody."""


async def routes_that_do_not_say(http: Http, refusal: tuple[int, str], headers: dict[str, str]) -> set[str]:
    """Those of all routes that answer otherwise to a request with these headers."""
    found = set()
    for route in http.app.router.routes():
        if route.resource is None or route.method in ("HEAD", "OPTIONS"):
            continue
        path = route.resource.canonical.replace("{path}", "").replace("{call_id}", "rtc_1")
        if await asked(http, route.method, path, headers=headers) != refusal:
            found.add(route.resource.canonical)
    return found


# --- keys ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, bearer("no"), bearer("ek_never"), {"Authorization": "Basic ann"}])
async def test_every_endpoint_needs_a_key_but_the_health_checks_and_the_page(
    keyed: Http, headers: dict[str, str]
) -> None:
    assert await routes_that_do_not_say(keyed, (401, "invalid_api_key"), headers) == OPEN


async def test_an_ephemeral_key_that_has_expired_opens_nothing(
    keyed: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_secrets, "LIFETIME", 0)
    secret = await minted(keyed, "ann")
    assert await routes_that_do_not_say(keyed, (401, "invalid_api_key"), bearer(secret)) == OPEN
    assert await turned_away(keyed, headers=bearer(secret)) == ("invalid_api_key", 3000)


async def test_what_is_not_there_needs_a_key_too(keyed: Http) -> None:
    assert await asked(keyed, "GET", "/v1/nothing") == (401, "invalid_api_key")
    assert await asked(keyed, "GET", "/v1/nothing", headers=bearer("ann")) == (404, "not_found")


async def test_a_refusal_can_be_read_by_pages_from_elsewhere(keyed: Http) -> None:
    async with keyed.post(CALLS, headers={"Origin": "https://app.example.org"}) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("origin", [None, "https://app.example.org"])
async def test_a_key_opens_both_doors_from_any_origin(keyed: Http, origin: str | None) -> None:
    headers = bearer("ann") | ({"Origin": origin} if origin else {})
    assert await asked(keyed, "GET", "/v1/pool", headers=headers) == (200, None)
    socket = await greeted(keyed, headers=headers)
    in_protocol = await greeted(keyed, origin=origin, protocols=("realtime", "openai-insecure-api-key.ann"))
    assert in_protocol.protocol == "realtime"
    await socket.close()
    await in_protocol.close()


@pytest.mark.parametrize("headers", [{}, bearer("nobody"), {"Authorization": "Basic ann"}])
async def test_a_websocket_without_a_valid_key_is_told_why(keyed: Http, headers: dict[str, str]) -> None:
    assert await turned_away(keyed, headers=headers) == ("invalid_api_key", 3000)


async def test_a_key_that_is_withdrawn_is_refused_at_once(keyed: Http, file: Path) -> None:
    secret = await minted(keyed, "ann")
    write_keys(file, [])
    assert await asked(keyed, "GET", "/v1/pool", headers=bearer("ann")) == (401, "invalid_api_key")
    assert await turned_away(keyed, headers=bearer(secret)) == ("invalid_api_key", 3000)
    assert await asked(keyed, "GET", "/v1/pool") == (401, "invalid_api_key")


async def test_the_first_key_closes_a_server_that_was_open(tmp_path: Path) -> None:
    async with serving(keys_file=tmp_path / "keys.json") as http:
        async with http.post(SECRETS, json={}) as response:
            secret = (await response.json())["value"]
        write_keys(tmp_path / "keys.json", [Key("Ann", sha256("ann"))])
        assert await asked(http, "GET", "/v1/pool") == (401, "invalid_api_key")
        assert await turned_away(http, headers=bearer(secret)) == ("invalid_api_key", 3000)


async def test_the_key_of_the_environment_is_a_key() -> None:
    async with serving(api_key="0123456789abcdef") as http:
        assert await asked(http, "GET", "/v1/pool") == (401, "invalid_api_key")
        assert await asked(http, "GET", "/v1/pool", headers=bearer("0123456789abcdef")) == (200, None)


async def test_an_ephemeral_key_opens_sessions_and_nothing_else(keyed: Http) -> None:
    secret = await minted(keyed, "ann")
    socket = await greeted(keyed, protocols=("realtime", f"openai-insecure-api-key.{secret}"))
    await socket.close()
    assert await asked(keyed, "GET", "/client-config.json", headers=bearer(secret)) == (200, None)
    for method, path in (("POST", SECRETS), ("POST", "/v1/realtime/sessions"), ("GET", "/v1/pool")):
        assert await asked(keyed, method, path, headers=bearer(secret)) == (403, "permission_denied")


async def test_a_call_is_out_of_reach_of_other_keys(keyed: Http) -> None:
    secret = await minted(keyed, "ann")
    phone = Phone().add_channel().add_audio()
    keyed.session.headers.update(bearer(secret))
    await phone.call(keyed)
    del keyed.session.headers["Authorization"]
    control = f"/v1/realtime?call_id={phone.location.rpartition('/')[2]}"
    assert await asked(keyed, "DELETE", phone.location, headers=bearer("bob")) == (404, "call_id_not_found")
    assert await refused(keyed, control, headers=bearer("bob")) == 404
    async with keyed.ws_connect(control, headers=bearer("ann")) as socket:
        assert (await socket.receive_json(timeout=5))["type"] == "session.created"
    assert await asked(keyed, "DELETE", phone.location, headers=bearer("ann")) == (204, None)
    await phone.close()


# --- limits --------------------------------------------------------------------------------------------


async def test_a_key_has_only_so_many_sessions_over_both_doors(keyed: Http) -> None:
    socket = await greeted(keyed, headers=bearer(await minted(keyed, "bob")))
    assert await refused(keyed, headers=bearer("bob")) == 429
    offer = {"data": "v=0", "headers": bearer("bob") | {"Content-Type": "application/sdp"}}
    assert await asked(keyed, "POST", CALLS, **offer) == (429, "too_many_sessions")
    await socket.close()
    await free(keyed)
    assert await asked(keyed, "POST", CALLS, **offer) == (400, "invalid_offer")
    assert await asked(keyed, "POST", CALLS, **offer) == (429, "rate_limit_exceeded")
    await served(keyed, headers=bearer("ann"))


async def test_a_call_that_has_ended_makes_room(keyed: Http) -> None:
    phone = Phone().add_channel().add_audio()
    keyed.session.headers.update(bearer("bob"))
    await phone.call(keyed)
    assert await asked(keyed, "POST", CALLS) == (415, "unsupported_content_type")
    assert await refused(keyed) == 429
    await asked(keyed, "DELETE", phone.location)
    await phone.close()
    await served(keyed)


async def test_a_server_without_keys_counts_by_address() -> None:
    async with serving(sessions_per_minute=1) as http:
        await served(http)
        assert await refused(http) == 429
        offer = {"data": "v=0", "headers": {"Content-Type": "application/sdp"}}
        async with http.post(CALLS, **offer) as response:
            assert response.status == 429
            assert 0 < int(response.headers["Retry-After"]) <= 60


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        (None, ""),
    ],
)
def test_a_house_with_ipv6_counts_as_one(address: str | None, counted: str) -> None:
    assert _network(address) == counted


async def test_a_message_that_is_too_long_ends_its_session_and_no_other(open_to_all: Http) -> None:
    flooding, other = await greeted(open_to_all), await greeted(open_to_all)
    with suppress(ConnectionError):  # it may be closed before all is sent
        await flooding.send_str("x" * (MAX_MESSAGE + 1))
    await free(open_to_all, UNITS - 1)
    await other.send_json({"type": "input_audio_buffer.clear"})
    assert (await other.receive_json(timeout=5))["type"] == "input_audio_buffer.cleared"
    await other.close()


async def test_a_request_for_an_ephemeral_key_that_is_too_large_is_refused(open_to_all: Http) -> None:
    assert await asked(open_to_all, "POST", SECRETS, data=b"x" * (MAX_BODY_BYTES + 1)) == (
        413,
        "request_too_large",
    )


async def test_a_request_for_an_ephemeral_key_that_does_not_arrive_is_given_up(
    open_to_all: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "BODY_TIMEOUT", 0.05)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    assert await asked(open_to_all, "POST", SECRETS, data=never()) == (408, "request_timeout")


async def test_a_key_that_has_many_ephemeral_keys_made_pushes_out_its_own(
    keyed: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_secrets, "MAX_KEYS", 2)
    anns = await minted(keyed, "ann")
    bobs = [await minted(keyed, "bob") for _ in range(3)]
    there = [(await asked(keyed, "POST", CALLS, headers=bearer(key)))[0] for key in (anns, *bobs)]
    assert there == [415, 401, 415, 415]


# --- secrets ---------------------------------------------------------------------------------------------


async def test_no_key_is_in_the_log_or_in_an_event(
    keyed: Http, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = "dk_a-key-that-must-not-be-told"
    write_keys(file, [Key("Ann", sha256(key))])
    secret = await minted(keyed, key)
    phone = Phone().add_channel().add_audio()
    keyed.session.headers.update(bearer(secret))
    await phone.call(keyed)
    told = [json.dumps(await phone.next_event())]
    await asked(keyed, "DELETE", phone.location)
    await phone.close()
    socket = await keyed.ws_connect(SOCKET, protocols=("realtime", f"openai-insecure-api-key.{key}"))
    told.append(await socket.receive_str())
    await socket.send_str(f'{{"type": "session.update", "session": {{"{key}": 1')
    told.append(await socket.receive_str())
    await socket.close()
    for wrong in (key[:-1], secret[:-1]):
        assert await asked(keyed, "POST", CALLS, headers=bearer(wrong)) == (401, "invalid_api_key")
    assert "session.created" in caplog.text
    for text in (caplog.text, *told):
        assert not [each for each in (key, key[:-1], sha256(key), secret, secret[:-1]) if each in text]


# --- pages from elsewhere, without keys ------------------------------------------------------------------

HERE = "http://localhost:8080"
EVIL = "http://evil.example"
HOSTS = [
    ("localhost:8080", None, True),
    ("localhost:8080", HERE, True),
    ("LOCALHOST:8080", HERE, True),
    ("app.localhost:8080", "http://app.localhost:8080", True),
    ("127.0.0.1:8080", "http://127.0.0.1:8080", True),
    ("192.168.1.5", "https://192.168.1.5", True),
    ("[::1]:8080", "http://[::1]:8080", True),
    # another page asks
    ("localhost:8080", EVIL, False),
    ("localhost:8080", "http://localhost:3000", False),
    ("localhost:8080", "null", False),
    ("localhost:8080", "http://localhost:8080.evil.example", False),
    ("[::1]:8080", "http://[", False),
    # another name leads here
    ("evil.example:8080", "http://evil.example:8080", False),
    ("evil.example", None, False),
    ("localhost.evil.example", None, False),
    ("127.0.0.1.evil.example", None, False),
    ("", None, False),
    ("[", None, False),
]


def from_page(host: str, origin: str | None) -> dict[str, str]:
    return {"Host": host} | ({"Origin": origin} if origin else {})


async def test_without_keys_only_pages_of_the_server_itself_may_use_it(open_to_all: Http) -> None:
    for host, origin, allowed in HOSTS:
        headers = from_page(host, origin)
        called = await asked(open_to_all, "POST", CALLS, headers=headers)
        told, _ = await asked(open_to_all, "GET", "/client-config.json", headers=headers)
        if allowed:
            assert (called, told) == ((415, "unsupported_content_type"), 200), (host, origin)
            await served(open_to_all, headers=headers)
        else:
            assert (called, told) == ((403, "origin_not_allowed"), 403), (host, origin)
            assert await refused(open_to_all, headers=headers) == 403, (host, origin)


@pytest.mark.parametrize(
    ("host", "origin"), [("localhost:8080", EVIL), ("localhost:8080", "null"), ("evil.example:8080", EVIL)]
)
async def test_without_keys_no_endpoint_is_for_pages_from_elsewhere(
    open_to_all: Http, host: str, origin: str
) -> None:
    headers = from_page(host, origin)
    assert await routes_that_do_not_say(open_to_all, (403, "origin_not_allowed"), headers) == OPEN


@pytest.mark.parametrize("key", ["anything", "ek_never"])
async def test_a_key_that_means_nothing_does_not_help_another_page(open_to_all: Http, key: str) -> None:
    status, _ = await asked(open_to_all, "POST", SECRETS, headers=bearer(key) | {"Origin": EVIL})
    assert status in (401, 403)


async def test_health_is_told_to_anybody(open_to_all: Http) -> None:
    for path in ("/healthz", "/readyz"):
        assert await asked(open_to_all, "GET", path, headers=from_page("duologue:8080", EVIL)) == (200, None)


async def test_other_origins_can_be_allowed() -> None:
    async with serving(allow_origin=("https://app.example.org/",)) as http:
        for host, origin, allowed in [
            ("localhost:8080", "https://app.example.org", True),
            ("localhost:8080", "https://APP.example.org", True),
            ("app.example.org", "https://app.example.org", True),
            ("app.example.org:8080", None, True),
            ("localhost:8080", "https://app.example.org:444", False),
            ("localhost:8080", "http://app.example.org", False),
            ("localhost:8080", EVIL, False),
        ]:
            status, _ = await asked(http, "POST", SECRETS, headers=from_page(host, origin), json={})
            assert status == (200 if allowed else 403), (host, origin)


async def test_all_origins_can_be_allowed() -> None:
    async with serving(allow_origin=("*",)) as http:
        for host, origin, _ in HOSTS:
            status, _ = await asked(http, "POST", SECRETS, headers=from_page(host, origin), json={})
            assert status == 200


async def test_the_name_that_the_server_listens_on_is_its_own() -> None:
    async with serving(host="duologue.lan") as http:
        assert (await asked(http, "GET", "/v1/pool", headers={"Host": "duologue.lan:8080"}))[0] == 200


async def test_a_page_elsewhere_can_use_an_ephemeral_key_that_its_own_server_had_made(
    open_to_all: Http,
) -> None:
    async with open_to_all.post(SECRETS, json={}) as response:
        secret = (await response.json())["value"]
    await served(open_to_all, headers=bearer(secret) | {"Origin": EVIL})
    async with open_to_all.options(CALLS, headers={"Origin": EVIL}) as response:
        assert response.headers["Access-Control-Allow-Origin"] == "*"
