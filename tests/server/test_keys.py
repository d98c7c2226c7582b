from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from server.__main__ import main
from server.keys import Key, Keys, KeysError, new_key, read_keys, sha256, write_keys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "duologue" / "keys.json"


def run(path: Path, *arguments: str) -> int:
    return main(["keys", *arguments, "--keys-file", str(path)])


def test_a_key_is_shown_once_and_only_its_hash_is_kept(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path, "add", "phone", "--sessions", "2", "--per-minute", "9") == 0
    key = capsys.readouterr().out.strip()
    assert key not in path.read_text()
    assert read_keys(path) == (Key("phone", sha256(key), 2, 9),)
    assert run(path, "list") == 0
    listed = capsys.readouterr().out
    assert "phone" in listed
    assert key not in listed


def test_keys_are_long_and_never_the_same() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith("dk_") and len(key) == 46 for key in keys)


def test_only_the_owner_can_read_the_file(path: Path) -> None:
    write_keys(path, [Key("a", sha256("a"))])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["keys.json"]


def test_a_key_that_is_removed_is_gone_and_the_others_stay(path: Path) -> None:
    assert run(path, "add", "a") == run(path, "add", "b") == 0
    assert run(path, "remove", "a") == 0
    assert [key.name for key in read_keys(path)] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "there"), "There is a key there already"),
        (("add", "no spaces"), "'no spaces' is no name for a key"),
        (("remove", "missing"), "There is no key missing in "),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    run(path, "add", "there")
    assert run(path, *arguments) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"duologue: {words}")
    assert [key.name for key in read_keys(path)] == ["there"]


def test_the_command_and_the_server_mean_the_same_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUOLOGUE_KEYS_FILE", str(path))
    assert main(["keys", "add", "a"]) == 0
    assert [key.name for key in read_keys(path)] == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"keys": [{"name": "a"}]}',
        '{"keys": [{"name": "a", "sha256": "b"}]}',
        json.dumps({"keys": [{"name": "a", "sha256": "0" * 64, "sessions": "1"}]}),
        json.dumps({"keys": [{"name": "a", "sha256": "0" * 64, "key": "dk_"}]}),
        json.dumps({"keys": [{"name": 1, "sha256": "0" * 64}]}),
    ],
)
def test_a_file_that_is_no_keys_file_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(KeysError, match="is not a keys file"):
        Keys(path)


def test_no_file_and_an_empty_one_mean_that_no_key_is_needed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert not Keys(path).needed
    assert not Keys(tmp_path / "empty").needed


def test_the_key_of_the_environment_is_valid_beside_those_of_the_file(path: Path) -> None:
    write_keys(path, [Key("a", sha256("from the file"))])
    keys = Keys(path, "from the environment")
    found = [keys.find(key) for key in ("from the environment", "from the file", "", "neither")]
    assert [key and key.name for key in found] == ["DUOLOGUE_API_KEY", "a", None, None]


def test_a_change_of_the_file_counts_at_once(path: Path) -> None:
    keys = Keys(path)
    write_keys(path, [Key("a", sha256("a"))])
    assert keys.needed
    assert keys.find("a")
    write_keys(path, [Key("b", sha256("b"))])
    assert keys.find("a") is None


def test_withdrawing_the_last_key_does_not_open_the_doors(path: Path) -> None:
    write_keys(path, [Key("a", sha256("a"))])
    keys = Keys(path)
    path.unlink()
    assert keys.find("a") is None
    assert keys.needed


def test_a_file_that_is_broken_later_lets_nobody_in(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = Keys(path)
    path.parent.mkdir()
    path.write_text("{")
    assert keys.needed
    assert "No key in it is valid" in caplog.text
    write_keys(path, [Key("a", sha256("a"))])
    assert keys.find("a")
