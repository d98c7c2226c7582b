"""What deploys the server, at work: the probes of the pods, the proxy, and the update that cuts no calls."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

import pytest
import yaml
from aiohttp import ClientSession, ClientWebSocketResponse

from server.__main__ import main
from server.turn import login
from tests.e2e import docker
from tests.e2e.relayed_caller import allocate
from tests.e2e.serving import SCRIPTED, serving

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
CADDY = Path(sys.executable).parent / "caddy"
KEY = "sk-of-the-test-and-nobody-else"
BEARER = {"Authorization": f"Bearer {KEY}"}

DEPLOYMENT = next(
    yaml.safe_load_all((ROOT / "deploy/kubernetes/deployment.yaml").read_text(encoding="utf-8"))
)
(POD,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def free_units(port: int | str) -> int:
    with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
        return int(json.load(response)["free"])


def in_pod(command: list[str], port: int) -> subprocess.Popen[bytes]:
    """A command of the deployment, beside a server at ``port``."""
    assert command[0] == "python"
    return subprocess.Popen([sys.executable, *command[1:]], env={**os.environ, "DUOLOGUE_PORT": str(port)})


@asynccontextmanager
async def conversation(port: int) -> AsyncIterator[ClientWebSocketResponse]:
    """A session over WebSocket, which takes a unit."""
    async with (
        ClientSession(headers=BEARER) as client,
        client.ws_connect(f"http://127.0.0.1:{port}/v1/realtime?model=any") as socket_,
    ):
        assert (await socket_.receive_json(timeout=10))["type"] == "session.created"
        yield socket_


async def lives(conversed: ClientWebSocketResponse) -> None:
    """It still answers."""
    await conversed.send_json({"type": "input_audio_buffer.clear"})
    assert (await conversed.receive_json(timeout=10))["type"] == "input_audio_buffer.cleared"


async def test_a_pod_is_ready_while_a_unit_is_free_and_stops_once_all_are() -> None:
    with serving("--num-pipelines", "1", *SCRIPTED) as served:
        port = int(served.url.rpartition(":")[2])
        ready = POD["readinessProbe"]["exec"]["command"]
        assert in_pod(ready, port).wait(30) == 0
        async with conversation(port):
            assert in_pod(ready, port).wait(30) == 1
            stopping = in_pod(POD["lifecycle"]["preStop"]["exec"]["command"], port)
            with pytest.raises(subprocess.TimeoutExpired):
                stopping.wait(8)
        assert stopping.wait(30) == 0


# The proxy and the update


@dataclass(frozen=True)
class Site:
    """A proxy, and what ``deploy/update`` finds around it."""

    port: int
    environment: dict[str, str]

    def docker(self, *words: str) -> None:
        """What ``docker`` does for ``deploy/update``."""
        command = [self.folder / "docker", *words]
        subprocess.run(command, env=self.environment, check=True, timeout=60)

    def update(self) -> subprocess.Popen[str]:
        """``deploy/update``, begun."""
        return subprocess.Popen(
            [ROOT / "deploy/update"], env=self.environment, stdout=subprocess.PIPE, text=True
        )

    def pid(self, service: str) -> str | None:
        """Of its server, if it runs."""
        file = self.folder / f"{service}.pid"
        return file.read_text() if file.exists() else None

    @property
    def folder(self) -> Path:
        return Path(self.environment["SERVICES"])

    @property
    def here(self) -> str:
        return self.environment["HERE"]

    @property
    def next(self) -> str:
        return self.environment["NEXT"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Caddy with our file, but for TLS, and no server behind it yet."""
    port, here = free_port(), free_port()
    environment = {
        "HERE": str(here),
        "NEXT": str(free_port()),
        "SERVICES": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "CADDY_ADMIN": f"127.0.0.1:{free_port()}",
        "DOMAIN": f"http://127.0.0.1:{port}",
        "TURN_DOMAIN": f"http://127.0.0.1:{free_port()}",
        "UPSTREAM": f"127.0.0.1:{here}",
        "DUOLOGUE_API_KEY": KEY,
    }
    found = Site(port, os.environ | environment)
    (tmp_path / "docker").write_text(f'#!/bin/sh\nexec {sys.executable} {docker.__file__} "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    with caddy(found.environment, tmp_path / "caddy.log"):
        yield found
        for service in docker.PORTS:
            found.docker("compose", "rm", service)


@contextmanager
def caddy(environment: dict[str, str], log: Path) -> Iterator[None]:
    command = [CADDY, "run", "--config", ROOT / "deploy/caddy/Caddyfile"]
    with running(command, environment, log):
        end = time.monotonic() + 30
        while "serving initial configuration" not in log.read_text():
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield


def line_with(lines: IO[str] | None, text: str) -> None:
    assert lines is not None
    for line in lines:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")


@pytest.fixture
def served(site: Site) -> Site:
    """The same with a server behind it."""
    site.docker("compose", "up", "duologue")
    answering = [
        "curl",
        "-sf",
        "--retry",
        "60",
        "--retry-delay",
        "1",
        "--retry-connrefused",
        "--retry-all-errors",
    ]
    subprocess.run([*answering, "-o", "/dev/null", f"http://127.0.0.1:{site.here}/readyz"], check=True)
    return site


async def test_whoever_comes_through_the_proxy_needs_the_key(served: Site) -> None:
    url = f"http://127.0.0.1:{served.port}"
    async with ClientSession() as stranger, ClientSession(headers=BEARER) as caller:
        found: dict[tuple[bool, str], Any] = {}
        for path in ("/", "/v1/pool", "/readyz", "/healthz"):
            for known, client in ((False, stranger), (True, caller)):
                async with client.get(url + path) as response:
                    found[known, path] = response.status
    assert [found[False, path] for path in ("/", "/v1/pool", "/readyz", "/healthz")] == [200, 401, 200, 200]
    assert [found[True, path] for path in ("/", "/v1/pool", "/readyz", "/healthz")] == [200] * 4


async def test_an_update_cuts_no_call(served: Site) -> None:
    async with conversation(served.port) as old:
        first = served.pid("duologue")
        update = served.update()
        await asyncio.to_thread(line_with, update.stdout, "Waiting for the calls of the old one")
        async with conversation(served.port) as between:
            assert (free_units(served.here), free_units(served.next)) == (3, 3)
            await lives(old)
            await old.close()
            await asyncio.to_thread(line_with, update.stdout, "Waiting for the calls of the second one")
            assert served.pid("duologue") not in (first, None)
            async with conversation(served.port):
                assert (free_units(served.here), free_units(served.next)) == (3, 3)
                await lives(between)
        await asyncio.to_thread(line_with, update.stdout, "Done")
        assert update.wait(30) == 0
    assert served.pid("next") is None


def test_an_update_to_what_does_not_start_changes_nothing(served: Site) -> None:
    first = served.pid("duologue")
    served.environment.update(BROKEN="next", READY="1")
    update = served.update()
    line_with(update.stdout, "Starting it beside the one that runs")
    assert update.wait(30) == 1
    assert (served.pid("duologue"), served.pid("next")) == (first, None)
    assert free_units(served.here) == 4


def test_an_update_starts_what_does_not_run(site: Site) -> None:
    update = site.update()
    line_with(update.stdout, "Done")
    assert update.wait(30) == 0
    assert free_units(site.here) == 4
    assert site.pid("next") is None


# One port 443 for the page and for TURN


@dataclass(frozen=True)
class Front:
    """HAProxy before Caddy and coturn, with the files that deploy them."""

    port: int
    roots: Path
    log: Path
    """Of Caddy's accesses."""

    async def tls(
        self, name: str, roots: Path | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to ``name`` from 127.0.0.5, as soon as its certificate is a good one."""
        where: dict[str, Any] = {"server_hostname": name, "local_addr": ("127.0.0.5", 0)}
        async with asyncio.timeout(30):
            while True:
                try:
                    context = ssl.create_default_context(cafile=roots or self.roots)
                    return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, **where)
                except (OSError, ssl.SSLError):
                    await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("front")
    port, plain, tls = free_port(), free_port(), free_port()
    environment = os.environ | {
        "DOMAIN": "voice.localhost",
        "TURN_DOMAIN": "turn.voice.localhost",
        "FRONT_PORT": str(port),
        "HTTP_PORT": str(free_port()),
        "HTTPS_PORT": str(free_port()),
        "TURN_TLS_PORT": str(tls),
        "UPSTREAM": f"127.0.0.1:{free_port()}",
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "CADDY_ADMIN": f"127.0.0.1:{free_port()}",
        "CERTIFICATES": str(folder / "caddy" / "certificates"),
        "COPY": str(folder / "copy"),
        "EVERY": "0.2",
        "DUOLOGUE_TURN_SECRET": "a-secret-of-sixteen-letters",
    }
    urls = f"turn:turn.voice.localhost:{plain},turns:turn.voice.localhost:443"
    configure = ["turn", "config", "--show-secret", "--turn-url", urls, "--tls-port", str(tls)]
    configure += ["--relay-ip", "127.0.0.1", "--peer", "127.0.0.1"]
    made = subprocess.run(
        [sys.executable, "-m", "server", *configure],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    configuration = folder / "turnserver.conf"
    configuration.write_text(made.stdout + f"userdb={folder}/turndb\npidfile={folder}/turn.pid\n")
    start = [ROOT / "deploy/coturn/start", configuration, "turn.voice.localhost"]
    haproxy = ["/usr/sbin/haproxy", "-f", ROOT / "deploy/front/haproxy.cfg"]
    log = folder / "caddy.log"
    with (
        running(start, environment, folder / "coturn.log"),
        running(haproxy, environment, folder / "front.log"),
    ):
        roots = folder / "caddy/pki/authorities/local/root.crt"
        with running([CADDY, "run", "--config", ROOT / "deploy/caddy/Caddyfile"], environment, log):
            yield Front(port, roots, log)


@contextmanager
def running(command: list[Any], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


ALLOCATE = bytes.fromhex("000300082112a442") + b"twelve bytes" + bytes.fromhex("0019000411000000")


async def asks_for_a_login(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """It is a TURN server: an Allocate without a login gets the error response to Allocate."""
    writer.write(ALLOCATE)
    header = await asyncio.wait_for(reader.readexactly(20), 10)
    assert header[:2] == bytes.fromhex("0113")
    assert header[8:] == b"twelve bytes"
    await asyncio.wait_for(reader.readexactly(int.from_bytes(header[2:4])), 10)


@pytest.mark.parametrize("text", ["", "use-auth-secret\n", "use-auth-secret\nstatic-auth-secret=\n"])
def test_coturn_does_not_start_without_a_secret(text: str, tmp_path: Path) -> None:
    """It would relay for anybody."""
    configuration = tmp_path / "turnserver.conf"
    configuration.write_text(text)
    start = [ROOT / "deploy/coturn/start", configuration, "turn.voice.localhost"]
    done = subprocess.run(start, capture_output=True, text=True, timeout=30)
    assert done.returncode == 78
    assert "has no secret: make it with duologue turn config" in done.stderr


async def test_coturn_gives_relays_each_time_that_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUOLOGUE_TURN_SECRET", secret := "a-secret-of-sixteen-letters")
    monkeypatch.setenv("CERTIFICATES", str(tmp_path))
    monkeypatch.setenv("COPY", str(tmp_path / "copy"))
    url, configuration = f"turn:127.0.0.1:{free_port()}?transport=tcp", tmp_path / "turnserver.conf"
    where = ["--turn-url", url, "--relay-ip", "127.0.0.1", "--peer", "127.0.0.1"]
    assert main(["turn", "config", "--output", str(configuration), *where]) == 0
    with configuration.open("a") as file:
        file.write(f"userdb={tmp_path}/turndb\npidfile={tmp_path}/turn.pid\n")
    username, credential = login(secret, "starts", time.time() + 60)
    server = {"urls": url, "username": username, "credential": credential}
    start = [ROOT / "deploy/coturn/start", configuration, "no.certificate"]
    for _ in range(20):
        with running(start, dict(os.environ), tmp_path / "log"):
            relay = await eventually(lambda: allocate(server))
            relay[0].close()


async def eventually(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """What comes of an attempt once somebody listens."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await attempt()
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)


async def test_the_log_of_the_proxy_has_no_keys(served: Site) -> None:
    async with ClientSession() as client:
        protocols = ("realtime", f"openai-insecure-api-key.{KEY}")
        url = f"http://127.0.0.1:{served.port}/v1/realtime?model=any"
        async with client.ws_connect(url, protocols=protocols) as socket_:
            assert (await socket_.receive_json(timeout=10))["type"] == "session.created"
    log = served.folder / "caddy.log"
    async with asyncio.timeout(10):
        while "/v1/realtime?model=any" not in log.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert KEY not in log.read_text()


async def test_one_port_leads_to_the_page_and_to_turn_each_with_its_own_certificate(front: Front) -> None:
    reader, writer = await front.tls("voice.localhost")
    writer.write(b"GET / HTTP/1.1\r\nHost: voice.localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 502")  # Caddy, with no server behind it
    writer.close()
    assert '"remote_ip":"127.0.0.5"' in front.log.read_text()

    reader, writer = await front.tls("turn.voice.localhost")
    assert writer.get_extra_info("peercert")["subjectAltName"] == (("DNS", "turn.voice.localhost"),)
    await asks_for_a_login(reader, writer)
    writer.close()


async def test_a_renewed_certificate_is_taken_over_and_cuts_nobody_off(front: Front) -> None:
    reader, writer = await front.tls("turn.voice.localhost")
    await asks_for_a_login(reader, writer)
    certificate = front.log.parent / "caddy/certificates/local/turn.voice.localhost/turn.voice.localhost.crt"
    new = front.log.parent / "renewed"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    make += ["-subj", "/CN=turn", "-addext", "subjectAltName=DNS:turn.voice.localhost", "-days", "2"]
    made = await asyncio.create_subprocess_exec(*make, "-keyout", f"{new}.key", "-out", f"{new}.crt")
    assert await made.wait() == 0
    os.replace(f"{new}.key", certificate.with_suffix(".key"))
    os.replace(f"{new}.crt", certificate)
    _, other = await front.tls("turn.voice.localhost", roots=certificate)
    other.close()
    await asks_for_a_login(reader, writer)
    writer.close()
