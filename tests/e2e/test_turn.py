"""Calls over a hardened coturn when there is no other way, and what that coturn refuses.

What runs is in :mod:`tests.e2e.turn_lab`.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page

from server.turn import LOGIN_QUOTA
from tests.e2e.browser import CHROMIUM, chromium, heard, microphone_file, types, wait_for_event
from tests.e2e.netns import (
    CALLER,
    OPEN_RELAY,
    RELAY,
    SERVER,
    NoNamespaces,
    internet,
)
from tests.e2e.relayed_caller import pitch
from tests.e2e.serving import SCRIPTED
from tests.e2e.soak import soak
from tests.e2e.turn_lab import BOTH, KINDS, SECRET, SERVER_OVER, Lab, turn_flags, turn_lab, urls, web
from units.engines.scripted import TONE_HZ
from units.messages import EAR_RATE

pytestmark = pytest.mark.e2e

LIFETIME_S = 4
NONCE_S = 3


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    short = (f"max-allocate-lifetime={LIFETIME_S}", f"stale-nonce={NONCE_S}")
    folder = tmp_path_factory.mktemp("turn")
    with turn_lab(folder, short, ["--record-calls", str(folder / "records")]) as lab:
        yield lab


def assert_whole(call: dict[str, Any]) -> None:
    """The caller was heard and answered, and heard the answer."""
    completed = "conversation.item.input_audio_transcription.completed"
    assert {"session.created", "session.updated", completed, "response.done"} <= set(call["types"])
    assert abs(call["hertz"] - TONE_HZ) < 2


def test_there_is_no_way_between_the_caller_and_the_server(lab: Lab) -> None:
    for host, address in ((lab.net.caller, SERVER), (lab.net.server, CALLER)):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            host.run("ip", "route", "get", address)
        assert "unreachable" in caught.value.stderr


@pytest.mark.parametrize(("relay_for", "address"), [("both", RELAY), ("server", OPEN_RELAY)])
def test_the_check_finds_every_transport_in_order(lab: Lab, relay_for: str, address: str) -> None:
    flags = turn_flags(address, *KINDS, relay_for=relay_for)
    lines = lab.duologue(lab.net.server, "turn", "check", *flags).splitlines()
    for url in urls(address).values():
        ours = [line.removeprefix(f"{url}: ") for line in lines if line.startswith(url)]
        assert ours[0].startswith("from relay to relay and back in ")
        assert ours[-1] == "refuses to relay to 127.0.0.1, 10.0.0.1, 169.254.169.254, 192.168.0.1"
        assert (f"from the relay to {SERVER} and back in" in ours[1]) == (relay_for == "both")


def test_the_check_tells_what_is_wrong(lab: Lab) -> None:
    lab.environment["DUOLOGUE_TURN_SECRET"] = "another-secret-altogether"
    try:
        with pytest.raises(AssertionError, match="FAILED: 401 Unauthorized"):
            lab.duologue(lab.net.server, "turn", "check", *turn_flags(RELAY, "udp", relay_for="both"))
    finally:
        lab.environment["DUOLOGUE_TURN_SECRET"] = SECRET


def test_the_doctor_tries_each_relay_as_calls_would(lab: Lab) -> None:
    report = lab.duologue(lab.net.server, "doctor", *SCRIPTED, *turn_flags(RELAY, *KINDS, relay_for="both"))
    for url in urls(RELAY).values():
        assert f"ok     {url}: from relay to relay and back in " in report


def test_callers_with_a_login_talk_over_udp_tcp_and_tls(lab: Lab) -> None:
    calls = lab.caller("calls", url=web(BOTH), urls=urls(RELAY))
    assert list(calls) == list(KINDS)
    for call in calls.values():
        assert_whole(call)
        assert call["pair"][0] == "relay"


def test_both_ends_may_take_a_relay(lab: Lab) -> None:
    call = lab.caller("call_to_relay", url=web(BOTH), ice_servers=[lab.login(60)])
    assert_whole(call)
    assert call["pair"] == ["relay", "relay"]


def test_callers_that_know_nothing_of_turn_talk_to_a_server_that_takes_relays(lab: Lab) -> None:
    calls = lab.caller("plain_calls", urls={kind: web(port) for kind, port in SERVER_OVER.items()})
    assert list(calls) == list(KINDS)
    for call in calls.values():
        assert_whole(call)
        assert call["pair"] == ["host", "relay"]


ONLY = """{
  const only = location.hash.slice(1);
  const Native = RTCPeerConnection;
  if (only) window.RTCPeerConnection = class extends Native {
    constructor({iceServers}) {
      super({iceServers: iceServers.filter(({urls}) => urls.includes(only))});
    }
  };
}"""
"""For the page: use the TURN server that its address names."""


async def test_the_page_talks_over_udp_tcp_and_tls_and_without_a_login(lab: Lab, tmp_path: Path) -> None:
    flags = [f"--unsafely-treat-insecure-origin-as-secure={web(BOTH)},{web(SERVER_OVER['udp'])}"]
    flags += ["--ignore-certificate-errors"]
    tone = 0.3 * np.sin(2 * np.pi * 500 / EAR_RATE * np.arange(EAR_RATE))
    microphone = microphone_file(tmp_path / "tone.wav", tone.astype(np.float32), lead_s=1.0, gap_s=1.0)
    browser = tmp_path / "chromium"
    browser.write_text(f'#!/bin/sh\nexec {shlex.join(lab.net.caller.prefix)} {CHROMIUM} "$@"\n')
    browser.chmod(0o755)
    async with chromium("about:blank", microphone, executable=browser, flags=flags, before=ONLY) as page:
        places = [*(f"{web(BOTH)}/#{url}" for url in urls(RELAY).values()), web(SERVER_OVER["udp"])]
        pages = [await page.context.new_page() for _ in places]
        pairs = await asyncio.gather(*map(converse, pages, places))
    assert [local for local, _ in pairs] == [*KINDS, "host"]
    assert pairs[-1] == ["host", "relay"]


async def converse(page: Page, url: str) -> list[str]:
    """A spoken turn on the page: the ends of the path it took, by transport to a relay or else by kind."""
    await page.goto(url)
    await page.click("#start")
    await wait_for_event(page, "output_audio_buffer.stopped")
    assert "conversation.item.input_audio_transcription.completed" in await types(page)
    assert abs(pitch(await heard(page)) - TONE_HZ) < 2
    stats = {x["id"]: x for x in await page.evaluate("() => window.duologue.stats")}
    (transport,) = [x for x in stats.values() if x["type"] == "transport"]
    pair = stats[transport["selectedCandidatePairId"]]
    ends = [stats[pair[f"{end}CandidateId"]] for end in ("local", "remote")]
    return [end.get("relayProtocol", end["candidateType"]) for end in ends]


def test_only_logins_of_this_server_are_accepted_and_only_in_time(lab: Lab) -> None:
    good = lab.login(60)
    moment, name = good["username"].split(":")
    assert lab.caller(
        "logins",
        servers={
            "good": good,
            "expired": lab.login(-1),
            "forged": lab.login(60, secret="another-secret-altogether"),
            "later": good | {"username": f"{int(moment) + 3600}:{name}"},
            "renamed": good | {"username": f"{moment}:root"},
            "altered": good | {"credential": good["credential"][::-1]},
            "none": good | {"username": None, "credential": None},
        },
    ) == {"good": 0} | dict.fromkeys(("expired", "forged", "later", "renamed", "altered", "none"), 401)


REFUSED = {
    "loopback": "127.0.0.1",
    "this host": "0.0.0.0",
    "private": "10.0.0.1",
    "private too": "172.16.0.1",
    "private as well": "192.168.1.1",
    "shared": "100.64.0.1",
    "link-local": "169.254.169.254",
    "multicast": "224.0.0.251",
    "broadcast": "255.255.255.255",
    "foreign": "9.9.9.9",
    "the relay's other address": "5.20.0.1",
    "the caller": CALLER,
}


def test_callers_are_relayed_to_the_media_server_and_to_nothing_else(lab: Lab) -> None:
    results = lab.caller("peers", server=lab.login(60), addresses=[SERVER, *REFUSED.values()])
    assert results == {SERVER: 0} | dict.fromkeys(REFUSED.values(), 403)


def test_a_server_that_takes_relays_reaches_public_addresses_only(lab: Lab) -> None:
    server = lab.login(60) | {"urls": urls(OPEN_RELAY)["udp"]}
    public = {CALLER, "5.20.0.1", "9.9.9.9"}
    results = lab.caller("peers", server=server, addresses=[*REFUSED.values()])
    assert results == {x: 0 if x in public else 403 for x in REFUSED.values()}


def test_nobody_on_the_relay_can_command_it(lab: Lab) -> None:
    ports = lab.net.relay.run("ss", "--listening", "--tcp", "--numeric")
    assert ":3478 " in ports
    assert ":5766 " not in ports


def test_one_login_gets_so_many_allocations_and_no_more(lab: Lab) -> None:
    codes = lab.caller("quota", server=lab.login(60), attempts=LOGIN_QUOTA + 2)
    assert codes == [0] * LOGIN_QUOTA + [486] * 2


def test_a_call_outlives_its_login(lab: Lab) -> None:
    short = lab.login(3)
    call = lab.caller("call", url=web(BOTH), ice_servers=[short], lasting=LIFETIME_S)
    assert_whole(call)
    assert call["types"][-1] == "input_audio_buffer.cleared"
    assert lab.caller("logins", servers={"short": short}) == {"short": 401}


def test_media_goes_on_while_logins_nonces_and_allocations_run_out(lab: Lab) -> None:
    calls = soak(lab, lab.folder / "records", seconds=4 * LIFETIME_S, login_s=LIFETIME_S)
    pairs = [["host", "host"], *[["relay", "host"]] * len(KINDS), *[["host", "relay"]] * len(KINDS)]
    assert [call["pair"] for call in calls] == pairs
    for call in calls:
        assert call["missing"] == 0, call
        assert max(*call["gaps_ms"], call["heard_gap_ms"]) < 1000, call


def test_a_machine_without_namespaces_is_told_of_loudly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "unshare").write_text(
        "#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n"
    )
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with (
        pytest.raises(
            NoNamespaces, match=r"nothing is known of calls between networks.*Operation not permitted"
        ),
        internet(),
    ):
        pass
