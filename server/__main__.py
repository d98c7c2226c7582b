"""The ``duologue`` command: serve, models, keys, turn, doctor, bench."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from server import interrupted  # noqa: F401 - first, for what it does
from server.app import build_app
from server.call_log import CallLog
from server.doctor import add_doctor_command
from server.flags import Parser, add_settings_flags, given_flags, hyphenated
from server.keys import Keys, KeysError
from server.keys_cli import add_keys_command
from server.logs import configure_logging, log_uncaught
from server.models_cli import add_models_command
from server.needed import fetch_missing
from server.running import CannotListen, is_local, run, say
from server.settings import Settings
from server.settings_sources import SettingsError, load_settings
from server.startup import STARTUP, Report
from server.tracing import start_tracing
from server.turn_cli import add_turn_command
from server.watch import Watcher
from units import EngineUnavailable, Pipeline, PipelineConfig, build_pipeline
from units.models import ModelError

Subparsers = Any
"""What argparse returns from ``add_subparsers``, whose type has no public name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command (``serve`` if none is named) and return its exit code: 2 for what a person can mend."""
    arguments = hyphenated(sys.argv[1:] if argv is None else argv)
    namespace = _parser(arguments).parse_args(_with_command(arguments))
    try:
        return int(namespace.run(namespace))
    except (SettingsError, KeysError, CannotListen, EngineUnavailable, ModelError) as error:
        sys.stderr.write(f"duologue: {error}\n")
        return 2


def serve(namespace: argparse.Namespace) -> int:
    """``duologue serve``."""
    settings = load_settings(given_flags(namespace), namespace.config)
    configure_logging(settings.log_level, settings.log_format)
    keys = Keys(settings.keys_path, settings.api_key.get_secret_value())
    if not (is_local(settings.host) or keys.needed or settings.allow_anonymous):
        raise SettingsError(
            f"Others can reach {settings.host}: make a key with duologue keys add NAME, or set "
            "DUOLOGUE_API_KEY, or let anybody in with --allow-anonymous."
        )
    return asyncio.run(_serve(settings, keys))


async def _serve(settings: Settings, keys: Keys) -> int:
    def load(report: Report) -> Pipeline:
        if settings.fetch_models:
            fetch_missing(settings, report)
        return build_pipeline(pipeline_config(settings), report)

    def announce(stage: str) -> None:
        say(f"{stage[:1].upper()}{stage[1:]} ...")

    asyncio.get_running_loop().set_exception_handler(log_uncaught)
    watchers: list[Watcher] = [CallLog]
    if (tracing := start_tracing(settings)) is not None:
        watchers.append(tracing.watcher)
    app = build_app(settings, load, announce, keys, watchers=watchers)
    try:
        await run(app, settings)
    finally:
        if tracing is not None:
            await asyncio.to_thread(tracing.close)
    if app[STARTUP].busy:
        # Loading cannot be interrupted, and leaving the interpreter would wait for its thread.
        logging.shutdown()
        os._exit(0)
    return 0


def pipeline_config(settings: Settings) -> PipelineConfig:
    """What the units are told of ``settings``."""
    return PipelineConfig(
        num_pipelines=settings.num_pipelines,
        vad=settings.engine("vad"),
        turn=settings.engine("turn"),
        stt=settings.engine("stt"),
        llm=settings.engine("llm"),
        tts=settings.engine("tts"),
        model=settings.model_name,
        instructions=settings.instructions,
        voice=settings.tts_voice,
        live_transcripts=settings.live_transcripts,
        strict_protocol=settings.strict_protocol,
        mcp_servers=settings.mcp_server,
        session_seconds=settings.longest_call,
        idle_timeout=settings.idle_timeout,
        locked=settings.lock,
    )


def _parser(arguments: Sequence[str]) -> Parser:
    parser = Parser(
        prog="duologue",
        description="Talk with an AI on your own machine. Without a command: serve.",
        epilog="duologue COMMAND --help tells more.",
    )
    parser.add_argument("--version", action="version", version=f"duologue {version('duologue')}")
    commands: Subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    server = commands.add_parser("serve", help="start the server", description="Start the server.")
    server.set_defaults(run=serve)
    add_settings_flags(server)
    add_models_command(commands)
    add_keys_command(commands)
    add_doctor_command(commands)
    add_turn_command(commands)
    _add_bench(commands, arguments)
    return parser


def _add_bench(commands: Subparsers, arguments: Sequence[str]) -> None:
    """The benchmarks bring libraries that a server does not need, so they are imported when asked for."""
    if not (arguments and arguments[0] == "bench"):
        commands.add_parser("bench", help="measure latency, memory and load")
        return
    try:
        from benchmarks.cli import add_bench_command
    except ImportError as error:
        sys.stderr.write(f"duologue: the benchmarks need something that is not installed ({error}).\n")
        raise SystemExit(2) from error
    add_bench_command(commands)


def _with_command(arguments: Sequence[str]) -> list[str]:
    """``arguments`` with ``serve`` in front, unless they name a command or ask for the overview."""
    if arguments and (arguments[0] in ("-h", "--help", "--version") or not arguments[0].startswith("-")):
        return list(arguments)
    return ["serve", *arguments]


if __name__ == "__main__":
    sys.exit(main())
