from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from pathlib import Path
from typing import Any

import pytest

from server.__main__ import main
from server.settings import Settings
from server.turn import Coturn, Turn, login, parse_turn_url, turnserver_conf

SECRET = "north-south-east-west"
UDP, TCP, TLS = "turn:turn.example.org", "turn:turn.example.org?transport=tcp", "turns:turn.example.org:443"
FLAGS = ["turn", "config", "--relay-ip", "203.0.113.9", f"--turn-url={UDP}", f"--turn-url={TLS}"]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONFIG", *map(str.upper, Settings.model_fields)):
        monkeypatch.delenv(f"DUOLOGUE_{name}", raising=False)
    monkeypatch.setenv("DUOLOGUE_TURN_SECRET", SECRET)
    monkeypatch.chdir(tmp_path)


def conf(*urls: str, relay_for: Any = "both", **more: Any) -> list[str]:
    turn = Turn(urls or (UDP, TCP, TLS), SECRET, 7200, relay_for)
    given = {"calls": 4, "peers": ("198.51.100.4",), "relay": ("203.0.113.9",)} | more
    return turnserver_conf(Coturn(turn, **given)).splitlines()


def test_a_login_is_an_expiry_and_a_name_with_their_hmac() -> None:
    (server,) = Turn((UDP,), SECRET, 7200).servers("rtc_1", now=1_700_000_000.9)
    assert server.url == UDP
    assert server.username == "1700007200:rtc_1"
    mac = hmac.new(SECRET.encode(), b"1700007200:rtc_1", hashlib.sha1)
    assert server.credential == base64.b64encode(mac.digest()).decode()


def test_nobody_can_tell_the_secret_from_how_it_is_shown() -> None:
    turn = Turn((UDP,), SECRET, 7200)
    assert SECRET not in repr(turn)
    assert turn.servers("a")[0].credential not in repr(turn.servers("a"))
    assert login(SECRET, "a", 1) != login(SECRET, "b", 1)


@pytest.mark.parametrize(
    ("url", "meaning"),
    [
        (UDP, ("turn.example.org", 3478, "udp")),
        (TCP, ("turn.example.org", 3478, "tcp")),
        (TLS, ("turn.example.org", 443, "tls")),
        ("turns:turn.example.org", ("turn.example.org", 5349, "tls")),
    ],
)
def test_turn_urls_say_where_and_how(url: str, meaning: tuple[str, int, str]) -> None:
    assert parse_turn_url(url) == meaning


@pytest.mark.parametrize(
    "url", ["stun:a", "turn:", "turn:u:p@a", "turn:u@a", "turn:a?transport=sctp", "turns:a?transport=udp"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"malformed|not a TURN URL"):
        parse_turn_url(url)


def test_the_configuration_listens_only_to_what_the_urls_name() -> None:
    assert {"listening-port=3478", "tls-listening-port=443", "no-tlsv1", "no-tlsv1_1", "no-dtls"} <= set(
        conf()
    )
    assert not {"no-udp", "no-tcp", "no-tls"} & set(conf())
    assert "no-tcp" in conf(UDP, TLS)
    assert {"no-udp", "no-tcp"} <= set(conf(TLS))
    assert "no-tls" in conf(UDP)
    assert not [line for line in conf(UDP) if line.startswith(("cert", "tls-"))]


def test_a_proxy_in_front_may_take_the_port_for_tls() -> None:
    lines = set(conf(tls_port=5349, relay=("203.0.113.9",), bind=True))
    assert "tls-listening-port=5349" in lines
    assert {"listening-ip=203.0.113.9", "listening-ip=127.0.0.1", "relay-ip=203.0.113.9"} <= lines


def test_callers_that_come_by_way_of_a_proxy_get_no_relay_on_its_address() -> None:
    lines = conf(tls_port=5349, relay=("203.0.113.9",))
    assert "relay-ip=203.0.113.9" in lines
    assert not [line for line in lines if line.startswith("listening-ip=")]


@pytest.mark.parametrize(
    "line",
    [
        "use-auth-secret",
        "fingerprint",
        "stale-nonce=600",
        "no-cli",
        "no-multicast-peers",
        "no-tcp-relay",
        "no-rfc5780",
    ],
)
def test_the_configuration_is_hardened(line: str) -> None:
    assert line in conf()


def test_the_configuration_shows_the_secret_only_when_asked() -> None:
    coturn = Coturn(Turn((UDP,), SECRET, 7200), 4)
    assert SECRET not in turnserver_conf(coturn)
    assert f"static-auth-secret={SECRET}\n" in turnserver_conf(coturn, secret=True)


def test_a_call_on_every_pipeline_has_room() -> None:
    few, many = conf(calls=1), conf(calls=100)
    assert {"user-quota=12", "total-quota=64", "min-port=49160", "max-port=49287"} <= set(few)
    assert {"total-quota=800", "max-port=50759"} <= set(many)
    assert "max-port=65159" in conf(calls=1000)


def denied(lines: list[str]) -> list[tuple[Any, Any]]:
    spans = [line.partition("=")[2].split("-") for line in lines if line.startswith("denied-peer-ip=")]
    return [(ipaddress.ip_address(first), ipaddress.ip_address(last)) for first, last in spans]


def allowed(lines: list[str]) -> list[str]:
    return [line.partition("=")[2] for line in lines if line.startswith("allowed-peer-ip=")]


def is_denied(lines: list[str], address: str) -> bool:
    x = ipaddress.ip_address(address)
    return any(a <= x <= b for a, b in denied(lines) if a.version == x.version)


@pytest.mark.parametrize(
    ("relay_for", "peers"), [("callers", ["198.51.100.4"]), ("both", ["198.51.100.4", "203.0.113.9"])]
)
def test_callers_may_reach_the_media_servers_only(relay_for: str, peers: list[str]) -> None:
    lines = conf(relay_for=relay_for)
    assert allowed(lines) == peers
    assert all(is_denied(lines, x) for x in ("0.0.0.0", "9.9.9.9", "255.255.255.255", "::", "2606:4700::1"))


def test_behind_a_nat_the_relay_has_two_addresses() -> None:
    lines = conf(relay=("203.0.113.9", "10.0.0.7"), bind=True)
    assert {"external-ip=203.0.113.9/10.0.0.7", "listening-ip=10.0.0.7", "relay-ip=10.0.0.7"} <= set(lines)
    assert allowed(lines) == ["198.51.100.4", "203.0.113.9", "10.0.0.7"]


@pytest.mark.parametrize(
    ("relay", "family"),
    [
        (("2001:db8::9",), ["ipv6"]),
        (("203.0.113.9",), []),
        (("203.0.113.9", "10.0.0.7"), []),
    ],
)
def test_a_relay_with_nothing_but_ipv6_gives_that_to_who_does_not_ask(
    relay: tuple[str, ...], family: list[str]
) -> None:
    option = "allocation-default-address-family="
    assert [x.removeprefix(option) for x in conf(relay=relay) if x.startswith(option)] == family


@pytest.mark.parametrize(
    "address",
    [
        *(
            "0.0.0.1",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.1.1",
        ),
        *("192.0.2.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *(
            "::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2001:db8::1",
            "2002:a00:1::1",
            "fc00::1",
            "fe80::1",
            "ff02::1",
        ),
    ],
)
def test_a_server_that_takes_relays_alone_reaches_nothing_that_is_not_public(address: str) -> None:
    lines = conf(relay_for="server")
    assert is_denied(lines, address)
    assert allowed(lines) == []


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "9.9.9.9", "172.32.0.1", "198.20.0.1", "223.255.255.255", "2606:4700::1"]
)
def test_a_server_that_takes_relays_alone_reaches_what_is_public(address: str) -> None:
    assert not is_denied(conf(relay_for="server"), address)


def test_no_range_that_is_denied_begins_with_the_address_that_coturn_takes_for_any() -> None:
    assert "denied-peer-ip=::-" not in "\n".join(conf(relay_for="server"))


@pytest.mark.parametrize(
    ("urls", "sentence"),
    [
        (
            (UDP, "turn:other.example.org"),
            "One coturn has one host, but --turn-url names other.example.org, turn",
        ),
        ((UDP, "turn:turn.example.org:80?transport=tcp"), "One coturn has one port without TLS, but"),
        (
            (TLS, "turns:turn.example.org:5349"),
            "One coturn has one port for TLS, but --turn-url names 443, 5349.",
        ),
    ],
)
def test_what_one_coturn_cannot_do_is_one_sentence(urls: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        conf(*urls)


def test_the_command_prints_a_configuration_without_the_secret(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAGS, "--peer", "198.51.100.4", "--peer", "198.51.100.5", "--metrics"]) == 0
    printed = capsys.readouterr().out
    assert SECRET not in printed
    assert {"realm=turn.example.org", "prometheus", "relay-ip=203.0.113.9"} <= set(printed.splitlines())
    assert allowed(printed.splitlines()) == ["198.51.100.4", "198.51.100.5", "203.0.113.9"]


def test_the_command_writes_the_secret_for_its_owner_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "turnserver.conf"
    path.write_text("old")
    path.chmod(0o644)
    assert main([*FLAGS, "--public-ip", "198.51.100.4", "--output", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"static-auth-secret={SECRET}\n" in path.read_text()
    assert "allowed-peer-ip=198.51.100.4\n" in path.read_text()
    assert SECRET not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["turn", "config"], "There is no TURN server to speak of: name it with --turn-url."),
        (
            FLAGS,
            "The relay may speak to the media servers only: say where they are, with --peer or --public-ip.",
        ),
        (
            ["turn", "config", "--turn-url=turn:turn..example", "--turn-for=server"],
            "There is no address of turn..example yet: give it with --relay-ip.",
        ),
        (
            [*FLAGS, "--peer=::1", "--output=/nowhere/x"],
            "/nowhere/x cannot be written: No such file or directory.",
        ),
    ],
)
def test_what_is_missing_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"duologue: {sentence}\n"


def test_a_check_of_a_server_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["turn", "check", "--turn-url=turn:127.0.0.1:9?transport=tcp", "--turn-for=callers"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("turn:127.0.0.1:9?transport=tcp: FAILED: ")
    assert SECRET not in printed
