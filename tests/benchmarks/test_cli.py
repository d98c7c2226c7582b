"""``duologue bench`` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cli
from benchmarks.figures import CannotRun, Figure
from server.__main__ import main


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def works(quick: bool, progress) -> list[Figure]:
        return [Figure(f"works, quick: {quick}", "ms", (1.0,), 0.5)]

    async def fails(quick: bool, progress) -> list[Figure]:
        raise CannotRun("It needs something.")

    monkeypatch.setattr(cli, "BENCHMARKS", {"works": works, "fails": fails})


def test_the_help_lists_the_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in cli.BENCHMARKS)


def test_a_name_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "speed"]) == 2
    assert "voice-scripted" in capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.usefixtures("benchmarks")
def test_missing_a_target_is_no_failure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "--quick", "--json", str(tmp_path / "found.json"), "works"]) == 0
    shown = capsys.readouterr().out
    assert "works, quick: True" in shown
    assert "OVER" in shown
    assert "noise" in shown
    found = json.loads((tmp_path / "found.json").read_text())
    assert [figure["values"] for figure in found["figures"]] == [[1.0]]
    assert [each["when"] for each in found["noise"]] == ["before", "after works"]


@pytest.mark.e2e
@pytest.mark.usefixtures("benchmarks")
def test_what_cannot_be_run_fails_and_the_others_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 1
    shown = capsys.readouterr()
    assert "works" in shown.out
    assert "fails could not be run: It needs something." in shown.err


@pytest.mark.e2e
def test_a_server_is_started_measured_and_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick", "idle"]) == 0
    assert "idle, 32 units" in capsys.readouterr().out
