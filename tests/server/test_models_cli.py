from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from server.models_cli import _lines, add_models_command


def run(*words: str) -> int:
    parser = argparse.ArgumentParser(prog="duologue")
    add_models_command(parser.add_subparsers())
    args = parser.parse_args(["models", *words])
    code = args.run(args)
    assert isinstance(code, int)
    return code


def test_list_shows_every_model_with_its_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--models-dir", str(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "LICENCE", "STATE", "USED", "FOR"]
    assert lines[1].split()[:5] == ["whisper-base", "148", "MB", "MIT", "absent"]


def test_list_names_a_corrupt_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "smart-turn-v3.2").mkdir()
    (tmp_path / "smart-turn-v3.2" / "smart-turn-v3.2-cpu.onnx").write_bytes(b"half")
    run("list", "--models-dir", str(tmp_path))
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("smart-turn"))
    assert "corrupt" in row


def test_verifying_an_absent_model_fails_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "whisper-base", "--models-dir", str(tmp_path)) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_verifying_an_empty_store_is_well(tmp_path: Path) -> None:
    assert run("verify", "--models-dir", str(tmp_path)) == 0


def test_fetching_an_unknown_model_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fetch", "gpt-9", "--models-dir", str(tmp_path)) == 1
    assert "There is no model named 'gpt-9'" in capsys.readouterr().err


def test_without_a_terminal_progress_is_a_line_for_every_tenth() -> None:
    stream = io.StringIO()
    show = _lines("small", stream)
    for done in range(0, 1001, 7):
        show(done, 1000)
    show(1000, 1000)
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == [str(n) for n in range(0, 101, 10)]
