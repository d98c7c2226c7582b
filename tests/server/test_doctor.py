"""Each thing that may be wrong, made wrong, and what the doctor says about it."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aioice import stun
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from server.__main__ import main
from server.doctor import machine, network, site
from server.doctor.finding import Finding
from server.settings import Settings
from tests.server.test_ice import StunServer, silent_port, stun_server

__all__ = ["silent_port", "stun_server"]

SCRIPTED: dict[str, Any] = dict.fromkeys(("vad", "turn_detector", "stt", "llm_backend", "tts"), "scripted")
READY = {"status": "ready", "units": 4, "free": 3}
NOW = 1_700_000_000.0
DAY = 86_400.0


def said(finding: Finding) -> str:
    """The whole line of something that is wrong."""
    assert not finding.ok
    return str(finding)


# This machine


@pytest.mark.parametrize("version", ["3.10.4", "3.14.0"])
def test_another_python_is_refused(version: str) -> None:
    assert f"{version} is not" in said(machine.python(version))


def test_this_python_is_fine() -> None:
    assert machine.python().ok


def test_a_missing_and_an_old_library_are_named_with_what_installs_them() -> None:
    line = said(machine.libraries(["aiortc==0.1", "no-such-library>=2", "numpy>=1"]))
    assert "no-such-library is missing" in line
    assert line.endswith("pip install 'aiortc==0.1' 'no-such-library>=2'")


def test_libraries_for_other_pythons_and_of_extras_are_not_asked_for() -> None:
    found = machine.libraries(["no-such-library; python_version < '3'", "none-such; extra == 'dev'"])
    assert found == Finding("libraries", "all 0 are there")


@pytest.mark.parametrize(
    ("chosen", "extra"),
    [
        ({}, ""),
        ({"stt": "whisper"}, "transformers"),
        ({"llm_backend": "transformers"}, "transformers"),
        ({"stt": "whisper", "device": "cuda"}, "cuda"),
        (SCRIPTED | {"device": "cuda"}, ""),
    ],
)
def test_engines_that_need_more_than_is_installed_by_default_say_so(
    chosen: dict[str, Any], extra: str
) -> None:
    assert machine.extra(Settings(**chosen)) == extra
    line = said(machine.libraries([f"no-such-library; extra == '{extra}'"], extra))
    assert not extra or line.endswith(f"pip install 'duologue[{extra}]'")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is in the package")
def test_what_llama_cpp_is_linked_with_is_looked_for() -> None:
    (there,) = machine.openmp(Settings())
    assert there.ok
    (missing,) = machine.openmp(Settings(), "libgomp.so.0")
    assert said(missing).endswith("sudo apt install libgomp1")
    assert not list(machine.openmp(Settings(**SCRIPTED)))


def test_too_little_memory_for_a_model_may_do_without_one() -> None:
    assert "1.0 GB are too little" in said(machine.memory(Settings(), machine.GIB))
    assert machine.memory(Settings(llm_backend="chat-completions"), machine.GIB).ok
    assert not machine.memory(Settings(**SCRIPTED), machine.GIB / 2).ok


def test_one_core_is_not_enough() -> None:
    assert "1 is not enough" in said(machine.cores(1))
    assert machine.cores(2).ok


def test_a_containers_limits_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("536870912\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert "0.5 GB" in said(machine.memory(Settings()))
    assert "0.5 is not enough" in said(machine.cores())


def test_a_container_without_limits_has_the_whole_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "none")
    without = machine.memory(Settings()), machine.cores()
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert (machine.memory(Settings()), machine.cores()) == without


def test_models_that_are_not_there_are_named_with_what_fetches_them(tmp_path: Path) -> None:
    lines = list(map(said, machine.models(Settings(models_dir=tmp_path))))
    assert len(lines) == 6
    assert lines[2].startswith("WRONG  model whisper-base: absent")
    assert lines[2].endswith("duologue models fetch whisper-base")


def test_missing_models_are_fine_if_the_server_fetches_them(tmp_path: Path) -> None:
    assert all(finding.ok for finding in machine.models(Settings(models_dir=tmp_path, fetch_models=True)))


def test_a_model_of_the_wrong_size_is_found(tmp_path: Path) -> None:
    (tmp_path / "whisper-base").mkdir()
    (tmp_path / "whisper-base" / "model.bin").write_bytes(b"half of it")
    settings = Settings(**SCRIPTED | {"stt": "faster-whisper"}, models_dir=tmp_path, fetch_models=True)
    (found,) = machine.models(settings)
    assert "corrupt" in said(found)


def test_engines_without_models_need_none() -> None:
    (found,) = machine.models(Settings(**SCRIPTED))
    assert found.ok


def test_no_gpu_is_looked_for_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert [str(found) for found in machine.gpu(Settings())] == ["ok     gpu: none"]
    assert list(machine.gpu(Settings(device="cpu"))) == []


@pytest.mark.parametrize(("kept", "fine"), [(True, True), (False, False)])
def test_a_clock_that_nothing_keeps_right_is_wrong(kept: bool, fine: bool) -> None:
    (found,) = machine.clock(kept)
    assert found.ok is fine


def test_the_kernel_says_whether_the_clock_is_kept_right_or_nothing() -> None:
    assert len(list(machine.clock())) <= 1


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({}, "ok     keys: none, and only this machine can reach the server"),
        ({"api_key": "a-key-of-sixteen-letters", "host": "0.0.0.0"}, "ok     keys: clients need one"),
        ({"host": "0.0.0.0"}, "WRONG  keys: none, and others can reach 0.0.0.0 -> duologue keys add NAME"),
        (
            {"host": "0.0.0.0", "allow_anonymous": True},
            "ok     keys: none: anybody who reaches the port may use the server, as you allowed",
        ),
    ],
)
def test_who_may_use_the_server_is_told(chosen: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert str(network.access(Settings(keys_file=tmp_path / "none.json", **chosen))) == words


def test_a_keys_file_that_cannot_be_read_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("nonsense")
    assert not network.access(Settings(keys_file=tmp_path / "keys.json")).ok


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print(0)", "0 found"),
        ("raise OSError('libcuda.so.1: cannot open')", "OSError: libcuda.so.1: cannot open"),
        ("raise SystemExit(3)", "it cannot be loaded"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_wrong(code: str, words: str) -> None:
    assert words in said(machine.gpus_counted_by("torch", code))


def test_a_gpu_that_is_found_is_fine() -> None:
    assert machine.gpus_counted_by("torch", "print('some warning'); print(1)").ok


# The network


@pytest.fixture
async def other_port() -> AsyncIterator[int]:
    """A port on which something that is no server of ours listens."""
    async with listening({}) as port:
        yield port


@asynccontextmanager
async def listening(
    answers: dict[str, Any], trust: ssl.SSLContext | None = None, date: float | None = None
) -> AsyncIterator[int]:
    """A web server on loopback that gives ``answers``, by path; its port."""

    async def answer(request: web.Request) -> web.Response:
        if request.path not in answers:
            raise web.HTTPNotFound
        found = answers[request.path]
        response = found if isinstance(found, web.Response) else web.json_response(found)
        if date is not None:
            response.headers["Date"] = formatdate(date, usegmt=True)
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await (where := web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)).start()
        yield runner.addresses[0][1]
        await where.stop()
    finally:
        await runner.cleanup()


async def test_a_port_that_something_else_has_is_wrong(other_port: int) -> None:
    line = said(await asyncio.to_thread(network.port, Settings(port=other_port)))
    assert f"Port {other_port} of 127.0.0.1 is in use -> free it, or choose another with --port" in line


async def test_a_port_that_our_server_has_is_fine() -> None:
    async with listening({"/healthz": {"status": "ok"}}) as port:
        found = await asyncio.to_thread(network.port, Settings(port=port))
    assert found == Finding(f"port {port}", f"a server is running at http://localhost:{port}")


def test_a_free_port_is_fine() -> None:
    assert network.port(Settings(port=0)).ok


def test_a_host_that_is_not_here_is_wrong() -> None:
    assert "is no address of this machine" in said(network.port(Settings(host="203.0.113.7", port=0)))


def test_udp_works_on_loopback() -> None:
    assert network.udp(["127.0.0.1"]).ok


def test_udp_on_an_address_of_another_machine_is_wrong() -> None:
    assert "no socket on 203.0.113.7" in said(network.udp(["203.0.113.7"]))


def test_a_machine_without_a_network_is_wrong() -> None:
    assert "no address but loopback" in said(network.udp([]))


@pytest.mark.parametrize(
    ("public_ip", "own", "public", "fine"),
    [
        ("8.8.8.8", ["10.0.0.7"], True, True),
        ("10.0.0.7", ["10.0.0.7"], False, True),
        ("10.0.0.7", ["10.0.0.7"], True, False),
        ("127.0.0.1", ["10.0.0.7"], False, False),
        ("0.0.0.0", ["10.0.0.7"], False, False),
        ("", ["8.8.8.8"], True, True),
        ("", ["10.0.0.7"], False, True),
        ("", ["10.0.0.7"], True, False),
    ],
)
def test_the_address_that_callers_are_told(public_ip: str, own: list[str], public: bool, fine: bool) -> None:
    assert network.public_address(Settings(public_ip=public_ip), own, public).ok is fine


def test_turn_makes_up_for_a_private_address() -> None:
    settings = Settings(ice_server=("turn:u:p@turn.example.org",))
    assert network.public_address(settings, ["10.0.0.7"], True).ok


async def asked(settings: Settings) -> list[Finding]:
    return [finding async for finding in network.ice_servers(settings)]


async def test_a_stun_server_that_answers_is_fine(stun_server: StunServer) -> None:
    settings = Settings(ice_server=(f"stun:127.0.0.1:{stun_server.port}",))
    assert [str(x) for x in await asked(settings)] == [f"ok     stun:127.0.0.1:{stun_server.port}: answers"]


async def test_a_stun_server_that_is_silent_is_wrong(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.ice.PROBE_TIMEOUT", 0.1)
    (found,) = await asked(Settings(ice_server=(f"stun:127.0.0.1:{silent_port}",)))
    assert "no answer in" in said(found)


async def test_a_turn_server_where_nothing_listens_is_wrong(unused_tcp_port: int) -> None:
    url = f"turn:user:password@127.0.0.1:{unused_tcp_port}?transport=tcp"
    (found,) = await asked(Settings(ice_server=(url,)))
    assert "no connection" in said(found)
    assert "password" not in said(found).partition("->")[0]


class RefusingTurn(StunServer):
    """Takes no login."""

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        request = stun.parse_message(data)
        answer = stun.Message(request.message_method, stun.Class.ERROR, request.transaction_id)
        answer.attributes["ERROR-CODE"] = (401, "Unauthorized")
        answer.attributes["REALM"], answer.attributes["NONCE"] = "example.org", b"once"
        self.transport.sendto(bytes(answer), addr)


async def test_a_turn_server_that_refuses_the_login_is_wrong() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(RefusingTurn, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    (found,) = await asked(Settings(ice_server=(f"turn:user:secret@127.0.0.1:{port}",)))
    transport.close()
    assert said(found).startswith(f"WRONG  turn:127.0.0.1:{port}: it refuses the login")


async def test_a_relay_that_shares_no_secret_with_this_server_is_wrong() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(RefusingTurn, local_addr=("127.0.0.1", 0))
    url = f"turn:127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    (found,) = await asked(Settings(turn_secret="sixteen-letters!", turn_url=(url,)))
    transport.close()
    assert said(found).startswith(f"WRONG  {url}: 401 Unauthorized -> see its log, ports and clock")


# A server at its public address


def certificate(folder: Path, begins: float, ends: float, name: str = "localhost") -> Path:
    """A self-signed certificate and its key in one PEM file; times in days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + timedelta(days=ends))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "both.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return file


async def look(url: str) -> dict[str, Finding]:
    return {finding.check: finding async for finding in site.site(url)}


def whole(**answers: Any) -> dict[str, Any]:
    """A server where all is well, but for ``answers``."""
    page = web.Response(text="<!doctype html>", content_type="text/html")
    usual: dict[str, Any] = {"healthz": {"status": "ok"}, "readyz": READY, "": page}
    return {f"/{path}": answer for path, answer in (usual | answers).items()}


@pytest.fixture
def over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ssl.SSLContext]:
    """A server's TLS with a certificate like :func:`certificate`'s, which this process trusts."""

    def made(*times: float, name: str = "localhost", trusted: bool = True) -> ssl.SSLContext:
        file = certificate(tmp_path, *times, name=name)
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    return made


async def test_a_server_where_all_is_well_is_fine(over_tls: Callable[..., ssl.SSLContext]) -> None:
    async with listening(whole(), over_tls(-10, 80)) as port:
        found = await look(f"https://localhost:{port}/some/path")
    assert [finding for finding in found.values() if not finding.ok] == []
    assert found["certificate"].said == "good for 80 days"
    assert found["readyz"].said == "3 of 4 places are free"
    assert list(found) == ["secure context", "certificate", "healthz", "clock", "readyz", "page"]


@pytest.mark.parametrize(
    ("times", "name", "trusted", "words"),
    [
        ((-90, -1), "localhost", True, "certificate has expired -> renew it"),
        ((-88, 2), "localhost", True, "good for 2 days -> renew it"),
        ((-1, 80), "voice.example.org", True, "-> get one for this name"),
        ((-1, 80), "localhost", False, "self-signed certificate -> get one from an authority"),
    ],
)
async def test_a_bad_certificate_is_wrong(
    over_tls: Callable[..., ssl.SSLContext], times: tuple[float, float], name: str, trusted: bool, words: str
) -> None:
    async with listening(whole(), over_tls(*times, name=name, trusted=trusted)) as port:
        found = await look(f"https://localhost:{port}")
    assert words in said(found["certificate"])
    assert "healthz" not in found


async def test_https_where_only_http_is_spoken_is_wrong(other_port: int) -> None:
    assert "none to localhost" in said((await look(f"https://localhost:{other_port}"))["connection"])


async def test_nothing_at_the_address_is_wrong(unused_tcp_port: int) -> None:
    assert "Cannot connect" in said((await look(f"http://localhost:{unused_tcp_port}"))["healthz"])


@pytest.mark.parametrize(
    "url",
    [
        "voice.example.org",
        "ftp://x",
        "https://",
        "http://[1",
        "https://x:99999",
        "https://a..b",
        "",
    ],
)
async def test_what_is_no_address_is_wrong(url: str) -> None:
    assert not site.is_local(url)
    found = await look(url)
    assert [str(finding) for finding in found.values()] == [
        f"WRONG  address: {url} is none -> give one like https://voice.example.org"
    ]


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("http://localhost:8080", True),
        ("http://127.0.0.1", True),
        ("https://voice.example.org", True),
        ("http://voice.example.org", False),
        ("http://10.0.0.7:8080", False),
    ],
)
def test_where_browsers_give_the_microphone(url: str, fine: bool) -> None:
    assert site.secure_context(url).ok is fine


@pytest.mark.parametrize(
    ("answers", "check", "words"),
    [
        ({"healthz": {"status": "fine"}}, "healthz", "not from this server"),
        ({"healthz": web.Response(status=502)}, "healthz", "status 502"),
        (
            {"healthz": web.Response(status=308, headers={"Location": "https://x/"})},
            "healthz",
            "on to https://x/",
        ),
        ({"readyz": {"status": "loading", "stage": "the voice"}}, "readyz", "loading the voice -> wait"),
        ({"readyz": {"status": "stopping"}}, "readyz", "stopping"),
        ({"readyz": READY | {"free": 0}}, "readyz", "all 4 places are taken"),
        ({"readyz": web.Response(text="<html>")}, "readyz", "unexpected mimetype"),
        ({"readyz": [1]}, "readyz", "status 200, not from this server"),
        ({"": web.Response(status=404)}, "page", "status 404"),
        (
            {"": web.Response(headers={"Permissions-Policy": "camera=(), microphone=()"})},
            "page",
            "forbids the microphone",
        ),
    ],
)
async def test_an_answer_that_is_wrong(answers: dict[str, Any], check: str, words: str) -> None:
    async with listening(whole(**answers)) as port:
        found = await look(f"http://127.0.0.1:{port}")
    assert words in said(found[check])


async def test_a_login_in_front_of_the_page_is_fine() -> None:
    async with listening(whole(**{"": web.Response(status=401)})) as port:
        found = await look(f"http://127.0.0.1:{port}")
    assert found["page"] == Finding("page", "there, behind a login")


@pytest.mark.parametrize(("skew", "words"), [(40, "40 s ahead of"), (-3600, "3600 s behind")])
def test_a_clock_that_is_wrong(skew: float, words: str) -> None:
    (found,) = site.clock(formatdate(NOW, usegmt=True), NOW + skew)
    assert words in said(found)


def test_a_clock_that_is_right_and_one_that_cannot_be_compared() -> None:
    assert [finding.ok for finding in site.clock(formatdate(NOW, usegmt=True), NOW + 29)] == [True]
    assert site.clock("yesterday") == site.clock("") == []


async def test_the_clock_is_compared_with_the_servers() -> None:
    async with listening(whole(), date=time.time() - 500) as port:
        found = await look(f"http://127.0.0.1:{port}")
    assert "s ahead of the server's" in said(found["clock"])


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (NOW - DAY, "not valid yet"),
        (NOW + 88 * DAY, "good for 2 days"),
        (NOW + 93 * DAY, "expired 3 days ago"),
    ],
)
def test_the_life_of_a_certificate(now: float, words: str) -> None:
    assert words in said(site.life("certificate", NOW, NOW + 90 * DAY, now))


def test_a_certificate_that_lives_for_six_days_is_fine_on_the_fourth() -> None:
    assert site.life("certificate", NOW, NOW + 6 * DAY, NOW + 4 * DAY).ok


def test_certificate_files(tmp_path: Path) -> None:
    assert site.certificate_file(certificate(tmp_path, -1, 80)).said == "good for 80 days"
    assert "expired" in said(site.certificate_file(certificate(tmp_path, -90, -2)))
    assert "cannot be read" in said(site.certificate_file(tmp_path / "none.pem"))
    (tmp_path / "text.pem").write_text("no certificate")
    assert "give a certificate in PEM" in said(site.certificate_file(tmp_path / "text.pem"))


# The command

FLAGS = [f"--{name.replace('_', '-')}=scripted" for name in SCRIPTED] + ["--port=0"]


@pytest.fixture
def big_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine and its Python have is not what these tests are about."""
    for name in ("cores", "memory", "libraries"):
        monkeypatch.setattr(machine, name, lambda *_, **__: Finding("machine", "big"))
    monkeypatch.setattr(network, "own_addresses", lambda: ["127.0.0.1"])


@pytest.mark.usefixtures("big_machine")
def test_the_command_says_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *FLAGS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert all(line.startswith("ok     ") for line in lines)


@pytest.mark.usefixtures("big_machine")
def test_the_command_fails_if_anything_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--json", f"--cert={tmp_path}/none.pem", *FLAGS]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    (wrong,) = [check for check in report["checks"] if not check["ok"]]
    assert wrong["check"] == f"certificate {tmp_path}/none.pem"
    assert wrong["fix"]


def test_settings_that_are_wrong_are_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--port", "high"]) == 1
    assert capsys.readouterr().out.startswith("WRONG  settings: --port is 'high'; it must be")


@pytest.mark.usefixtures("big_machine")
def test_a_check_that_fails_itself_is_a_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Finding:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(machine, "python", broken)
    assert main(["doctor", *FLAGS]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("WRONG  doctor: a check failed: RuntimeError('no such thing')")
    assert len(lines) == 11


@pytest.mark.usefixtures("big_machine")
def test_a_site_makes_private_addresses_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(url: str) -> AsyncIterator[Finding]:
        for finding in ():
            yield finding

    monkeypatch.setattr(site, "site", nothing)
    assert main(["doctor", "https://voice.example.org", *FLAGS]) == 1
    assert "so callers get no sound" in capsys.readouterr().out
