from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn
from urllib.request import urlopen

import pytest

from server import __main__ as command
from server.__main__ import main, pipeline_config
from server.running import CannotListen, address, listen, say
from server.settings import Settings
from units import EngineSettings, EngineUnavailable
from units.engines import registry

SCRIPTED = [f"--{option}=scripted" for option in ("vad", "turn-detector", "stt", "llm-backend", "tts")]

INTERRUPTED = """
import sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "aiohttp":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
import server.__main__
"""

LOADING_FOR_EVER = """
import sys, time
from units import register
register("vad", "slow", lambda _: time.sleep(600))
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """The first line that the process prints with ``text`` in it."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return line.strip()
    raise AssertionError(f"it ended without printing {text!r}")


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


@pytest.mark.e2e
def test_a_server_says_where_it_is_and_stops_cleanly_when_told_to() -> None:
    with python("-m", "server", "serve", "--port", "0", *SCRIPTED) as process:
        url = line_with(process, "Duologue is ready: ").rpartition(" ")[2]
        with urlopen(f"{url}/readyz") as response:
            assert json.load(response) == {"status": "ready", "units": 4, "free": 4}
        process.send_signal(signal.SIGTERM)
        assert line_with(process, "Stopping") == "Stopping. Once more to stop at once."
        assert process.wait(20) == 0


@pytest.mark.e2e
def test_a_server_stops_cleanly_although_nobody_reads_what_it_prints() -> None:
    with python("-m", "server", "serve", "--port", "0", *SCRIPTED) as process:
        url = line_with(process, "Duologue is ready: ").rpartition(" ")[2]
        assert process.stdout is not None
        process.stdout.close()
        with urlopen(f"{url}/readyz") as response:
            assert response.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_what_cannot_be_printed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        say("Duologue is ready")
        say("Stopping")
        monkeypatch.undo()
        with suppress(OSError):
            full.close()


@pytest.mark.e2e
def test_a_server_can_be_stopped_while_its_models_load() -> None:
    with python("-c", LOADING_FOR_EVER, "--port", "0", "--vad", "slow") as process:
        line_with(process, "Loading voice activity: slow")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_ctrl_c_while_the_server_is_imported_leaves_no_traceback() -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (-signal.SIGINT, "")


def test_an_engine_that_cannot_be_loaded_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(_: EngineSettings) -> NoReturn:
        raise EngineUnavailable("The model 'm' is not there; run: duologue models fetch m")

    monkeypatch.setitem(registry._registered, ("vad", "broken"), unavailable)
    assert complaint(capsys, "serve", "--port", "0", "--vad", "broken") == (
        "duologue: The model 'm' is not there; run: duologue models fetch m\n"
    )


def test_a_port_in_use_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert complaint(capsys, "--port", str(port), *SCRIPTED) == (
            f"duologue: Port {port} of 127.0.0.1 is in use; free it, or choose another with --port.\n"
        )


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ("192.0.2.1", "192.0.2.1 is no address of this machine; choose another with --host."),
        ("not a host", "There is no address 'not a host'; choose another with --host."),
    ],
)
def test_a_bad_address_is_one_sentence(host: str, sentence: str) -> None:
    with pytest.raises(CannotListen) as caught:
        listen(host, 0)
    assert str(caught.value) == sentence


@pytest.mark.e2e
def test_others_are_not_let_in_without_a_key_unless_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Settings] = []

    async def start(settings: Settings, _: object) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr(command, "_serve", start)
    for host in ("0.0.0.0", "::", "192.0.2.1", "duologue.example.org"):
        assert complaint(capsys, "--host", host) == (
            f"duologue: Others can reach {host}: make a key with duologue keys add NAME, or set "
            "DUOLOGUE_API_KEY, or let anybody in with --allow-anonymous.\n"
        )
    assert started == []
    assert main(["--host", "0.0.0.0", "--allow-anonymous"]) == 0
    assert main(["--host", "127.0.0.1"]) == main(["--host", "localhost"]) == main(["--host", "::1"]) == 0
    monkeypatch.setenv("DUOLOGUE_API_KEY", "0123456789abcdef")
    assert main(["--host", "0.0.0.0"]) == 0
    assert len(started) == 5


def test_a_wrong_setting_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys, "--port", "x") == (
        "duologue: --port is 'x'; it must be a whole number from 0 to 65535.\n"
    )


def test_a_folder_for_records_that_cannot_be_written_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "calls")
    for flag in ("--record-calls", "--transcripts"):
        assert complaint(capsys, flag, folder, *SCRIPTED) == (
            f"duologue: {flag} is {folder!r}; nothing can be written there: Not a directory.\n"
        )


def test_a_wrong_command_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sevre"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("duologue: argument COMMAND: invalid choice: 'sevre'")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["serve", "--help"], ["models", "--help"]])
def test_asking_for_help_is_no_error(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    assert "duologue" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://localhost:1"),
        ("0.0.0.0", "http://localhost:1"),
        ("::", "http://localhost:1"),
        ("192.0.2.1", "http://192.0.2.1:1"),
        ("2001:db8::1", "http://[2001:db8::1]:1"),
    ],
)
def test_the_address_can_be_typed_into_a_browser(host: str, url: str) -> None:
    assert address(host, 1) == url


def test_all_interfaces_means_both_families() -> None:
    with listen("::", 0) as listening, socket.create_connection(("127.0.0.1", listening.getsockname()[1])):
        pass


def test_units_are_told_what_was_chosen() -> None:
    config = pipeline_config(Settings(llm_model="/models/qwen.gguf", num_pipelines=3, tts_voice="af_sky"))
    assert (config.model, config.num_pipelines, config.voice) == ("qwen.gguf", 3, "af_sky")
    assert (config.stt.name, config.llm.name) == ("faster-whisper", "llama-cpp")
