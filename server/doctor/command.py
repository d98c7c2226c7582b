"""The command: which checks are made, and how they are shown."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from server.doctor import machine, network, site
from server.doctor.finding import Finding
from server.flags import add_settings_flags, given_flags
from server.settings import Settings
from server.settings_sources import SettingsError, load_settings

Check = Callable[[], Iterable[Finding]]
"""May block."""


def add_doctor_command(commands: Any) -> None:
    """Add the command, to what argparse's ``add_subparsers`` returned."""
    text = "say what keeps calls from working, and what to do about it"
    parser = commands.add_parser("doctor", help=text, description=text)
    parser.set_defaults(run=doctor)
    parser.add_argument("url", nargs="?", help="a server's public address, such as https://voice.example.org")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="a certificate in PEM to look at")
    parser.add_argument("--full", action="store_true", help="hash the models again")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings_flags(parser)


def doctor(namespace: argparse.Namespace) -> int:
    """Check, print one line for each check, and return 1 if something is wrong."""
    try:
        findings = asyncio.run(_checked(namespace))
    except KeyboardInterrupt:
        return 130
    well = all(finding.ok for finding in findings)
    if namespace.json:
        checks = [{"check": f.check, "ok": f.ok, "said": f.said, "fix": f.fix} for f in findings]
        sys.stdout.write(json.dumps({"ok": well, "checks": checks}, indent=2) + "\n")
    return 0 if well else 1


async def _checked(namespace: argparse.Namespace) -> list[Finding]:
    findings = []
    async for finding in _guarded(_findings(namespace)):
        findings.append(finding)
        if not namespace.json:
            sys.stdout.write(f"{finding}\n")
            sys.stdout.flush()
    return findings


async def _findings(namespace: argparse.Namespace) -> AsyncIterator[Finding]:
    try:
        settings = load_settings(given_flags(namespace), namespace.config)
    except SettingsError as error:
        yield Finding("settings", " ".join(str(error).splitlines()).rstrip("."), "mend that, then look again")
        return
    checks = [_on_a_thread(check) for check in _here(settings, namespace)]
    checks.append(network.ice_servers(settings))
    if namespace.url:
        checks.append(site.site(namespace.url))
    for check in checks:
        async for finding in _guarded(check):
            yield finding


def _here(settings: Settings, namespace: argparse.Namespace) -> Iterator[Check]:
    """The checks of this machine."""
    public = bool(namespace.url) and not site.is_local(namespace.url)
    yield lambda: [machine.python()]
    yield lambda: [machine.libraries(extra=machine.extra(settings))]
    yield lambda: machine.openmp(settings)
    yield lambda: [machine.memory(settings)]
    yield lambda: [machine.cores()]
    yield lambda: machine.models(settings, namespace.full)
    yield lambda: machine.gpu(settings)
    if public:
        yield machine.clock
    yield lambda: [network.access(settings)]
    yield lambda: [network.port(settings)]
    yield lambda: [network.udp(network.own_addresses())]
    yield lambda: [network.public_address(settings, network.own_addresses(), public)]
    if namespace.cert:
        yield lambda: [site.certificate_file(namespace.cert)]


async def _on_a_thread(check: Check) -> AsyncIterator[Finding]:
    for finding in await asyncio.to_thread(lambda: list(check())):
        yield finding


async def _guarded(check: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """What ``check`` finds; its own failure is one more thing that is wrong, and the others go on."""
    try:
        async for finding in check:
            yield finding
    except Exception as error:
        yield Finding("doctor", f"a check failed: {error!r}", "report this as a mistake of the doctor")
