from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from server.__main__ import pipeline_config
from server.flags import Parser, add_settings_flags, given_flags, hyphenated
from server.ice import IceServer
from server.settings import Settings, group_of, is_secret
from server.settings_docs import render
from server.settings_sources import SettingsError, load_settings
from server.turn import Turn

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONFIG", *map(str.upper, Settings.model_fields)):
        monkeypatch.delenv(f"DUOLOGUE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def from_command_line(*arguments: str) -> Settings:
    parser = Parser(prog="duologue serve")
    add_settings_flags(parser)
    namespace = parser.parse_args(hyphenated(arguments))
    return load_settings(given_flags(namespace), namespace.config)


def complaint(**flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    return str(caught.value)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_described_and_has_a_heading(name: str) -> None:
    assert Settings.model_fields[name].description
    assert group_of(name)


def test_the_configuration_page_is_what_the_declarations_say() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == render(), "run: python -m server.settings_docs > docs/configuration.md"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_configuration_page_names_every_setting(name: str) -> None:
    assert f"| `{name}` |" in render()


def test_the_help_names_every_setting_but_the_keys() -> None:
    parser = Parser(prog="duologue serve")
    add_settings_flags(parser)
    for name in Settings.model_fields:
        assert (f"--{name.replace('_', '-')} " in parser.format_help()) != is_secret(name)


def test_flags_beat_the_environment_which_beats_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "duologue.toml").write_text('port = 1\nhost = "a"\nlanguage = "de"\n')
    monkeypatch.setenv("DUOLOGUE_PORT", "2")
    monkeypatch.setenv("DUOLOGUE_HOST", "b")
    settings = from_command_line("--port", "3")
    assert (settings.port, settings.host, settings.language, settings.num_pipelines) == (3, "b", "de", 4)


def test_settings_made_by_hand_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_PORT", "2")
    assert Settings().port == 8080


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1


def test_the_file_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("num-pipelines = 7\n")
    assert from_command_line("--config", "other.toml").num_pipelines == 7


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_PORT", "")
    assert load_settings({}).port == 8080


def test_underscores_work_in_flags_and_stay_in_values() -> None:
    settings = from_command_line("--num_pipelines=3", "--llm_backend", "scripted", "--llm_model", "my_model")
    assert (settings.num_pipelines, settings.llm_backend, settings.llm_model) == (3, "scripted", "my_model")


def test_a_switch_can_be_turned_off() -> None:
    assert from_command_line("--no-live-transcripts").live_transcripts is False


def test_ice_servers_may_be_repeated_or_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    two = ("stun:a:1", "turn:u:p%40x@b:2?transport=tcp")
    flags = from_command_line("--ice-server", two[0], "--ice-server", two[1])
    monkeypatch.setenv("DUOLOGUE_ICE_SERVER", ", ".join(two))
    assert flags.ice_server == load_settings({}).ice_server == two
    assert flags.ice_servers == (
        IceServer("stun:a:1"),
        IceServer("turn:b:2?transport=tcp", "u", "p@x"),
    )


def test_no_mcp_server_is_allowed_unless_it_is_named() -> None:
    assert load_settings({}).mcp_server == ()
    named = from_command_line(
        "--mcp-server", "https://a.example/mcp", "--mcp_server", "http://localhost:8000"
    )
    assert named.mcp_server == ("https://a.example/mcp", "http://localhost:8000")
    assert pipeline_config(named).mcp_servers == named.mcp_server


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"allow_origin": ["a.example"]},
            "--allow-origin is 'a.example'; it must be an address like https://",
        ),
        ({"allow_origin": ["https://a/b"]}, "--allow-origin is 'https://a/b'; it must be an address like"),
        ({"lock": ["voices"]}, "--lock is 'voices'; it must be of: instructions, max_output_tokens, "),
        ({"longest_call": "1"}, "--longest-call is '1'; it must be a whole number from 10 to 86400."),
        ({"mcp_server": ["a.example"]}, "--mcp-server is 'a.example'; it must be an address like https://"),
        ({"mcp_server": ["https://a/?key=1"]}, "--mcp-server is 'https://a/?key=1'; it must be an address"),
        ({"mcp_server": ["https://me@a/"]}, "--mcp-server is 'https://me@a/'; it must be an address like"),
        ({"port": "x"}, "--port is 'x'; it must be a whole number from 0 to 65535."),
        ({"num_pipelines": "0"}, "--num-pipelines is '0'; it must be a whole number from 1 to 1000."),
        ({"device": "gpu"}, "--device is 'gpu'; it must be one of: auto, cpu, cuda."),
        ({"host": ""}, "--host is ''; it must be a text that is not empty."),
        ({"public_ip": "example.org"}, "--public-ip is 'example.org'; it must be an IP address"),
        (
            {"llm_base_url": "localhost:11434"},
            "--llm-base-url is 'localhost:11434'; it must be an address like",
        ),
        ({"stt": "vosk"}, "--stt is 'vosk'; it must be one of: faster-whisper, openai, scripted, whisper"),
        ({"ice_server": ["http://a"]}, "--ice-server is 'http://a'; it must look like stun:HOST:PORT"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(flags: dict[str, Any], sentence: str) -> None:
    assert complaint(**flags).startswith(sentence)


@pytest.mark.parametrize("key", ["too short", "has spaces in between", "ek_0123456789abcdef", "kurz"])
def test_a_bad_key_is_not_repeated(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_API_KEY", key)
    assert complaint().startswith("DUOLOGUE_API_KEY must be 16 characters or more, of letters, digits")
    assert key not in complaint()


def test_units_are_told_how_long_sessions_may_be_and_what_is_locked() -> None:
    settings = from_command_line(
        "--longest-call", "60", "--idle-timeout", "20", "--lock", "tools, instructions"
    )
    config = pipeline_config(settings)
    assert (config.session_seconds, config.idle_timeout) == (60, 20)
    assert config.locked == ("tools", "instructions")


def test_a_bad_value_is_traced_to_the_variable_or_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "duologue.toml").write_text("live_transcripts = 3\n")
    monkeypatch.setenv("DUOLOGUE_PORT", "high")
    assert complaint().splitlines() == [
        "DUOLOGUE_PORT is 'high'; it must be a whole number from 0 to 65535.",
        "live_transcripts in duologue.toml is 3; it must be true or false.",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prot = 1", "There is no setting prot in duologue.toml; did you mean port?"),
        ("port =", "duologue.toml is not valid TOML: "),
        ("stt_api_key = 'k'", "Keys do not belong in duologue.toml: set DUOLOGUE_STT_API_KEY"),
    ],
)
def test_a_bad_file_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "duologue.toml").write_text(text)
    assert complaint().startswith(sentence)


def test_a_file_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(SettingsError, match=r"^There is no settings file nope\.toml\.$"):
        load_settings({}, "nope.toml")


def test_a_misspelt_variable_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_NUM_PIPLINES", "2")
    assert complaint() == "There is no setting DUOLOGUE_NUM_PIPLINES; did you mean DUOLOGUE_NUM_PIPELINES?"


def test_a_variable_that_resembles_nothing_is_only_mentioned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DUOLOGUE_XYZZY", "2")
    load_settings({})
    assert "DUOLOGUE_XYZZY is no setting" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--prot", "80"], "duologue serve: there is no option --prot; did you mean --port?\n"),
        (["--xyzzy"], "duologue serve: there is no option --xyzzy.\n"),
        (["8080"], "duologue serve: there is no argument 8080.\n"),
        (["--stt-api-key", "k"], "set DUOLOGUE_STT_API_KEY in the environment.\n"),
        (["--port"], "duologue serve: argument --port: expected one argument (see duologue serve --help)\n"),
    ],
)
def test_a_wrong_flag_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        from_command_line(*arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert printed.endswith(sentence)
    assert printed.count("\n") == 1


def test_keys_come_from_the_environment_and_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_LLM_API_KEY", "sk-hush")
    settings = load_settings({})
    assert settings.engine("llm").api_key == "sk-hush"
    assert "sk-hush" not in repr(settings)


TURN = "turn:turn.example.org"


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DUOLOGUE_TURN_SECRET", "north-south-east-west")
    return "north-south-east-west"


def test_turn_servers_need_a_secret() -> None:
    assert complaint(turn_url=[TURN]) == (
        f"--turn-url is '{TURN}'; it needs the secret, in DUOLOGUE_TURN_SECRET or --turn-secret-file."
    )


@pytest.mark.parametrize("url", ["turn:u:p@turn.example.org", "stun:a", "turns:a?transport=udp"])
def test_turn_urls_are_checked(url: str, secret: str) -> None:
    assert complaint(turn_url=[url]) == (
        f"--turn-url is '{url}'; it must look like turn:HOST, turn:HOST?transport=tcp or turns:HOST:443."
    )


def test_turn_servers_are_known_with_what_was_chosen(secret: str) -> None:
    settings = from_command_line("--turn-url", f"{TURN}, turns:turn.example.org:443", "--turn-for", "server")
    assert settings.turn == Turn((TURN, "turns:turn.example.org:443"), secret, 7200, "server")
    assert secret not in repr(settings)
    assert Settings().turn is None


def test_the_turn_secret_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("over-hill-and-dale\n")
    settings = from_command_line("--turn-url", TURN, "--turn-secret-file", "secret")
    assert settings.turn is not None
    assert settings.turn.secret == "over-hill-and-dale"


def test_the_turn_secret_is_no_flag_and_not_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "duologue.toml").write_text("turn_secret = 'north-south-east-west'\n")
    assert complaint() == "Keys do not belong in duologue.toml: set DUOLOGUE_TURN_SECRET in the environment."
    with pytest.raises(SystemExit):
        from_command_line("--turn-secret", "north-south-east-west")
    assert "north" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["too-short", "spaces in it, many of them", "#" * 15])
def test_a_bad_turn_secret_is_refused_and_not_shown(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(text)
    rule = "must hold 16 characters or more, and no spaces: openssl rand -hex 32 makes one"
    assert (
        complaint(turn_secret_file="secret", turn_url=[TURN]) == f"--turn-secret-file is 'secret'; it {rule}."
    )
    monkeypatch.setenv("DUOLOGUE_TURN_SECRET", text)
    assert complaint() == f"DUOLOGUE_TURN_SECRET {rule}."


def test_a_login_lasts_at_least_as_long_as_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUOLOGUE_TURN_SECRET", "a-secret-of-sixteen-letters")
    for ttl, longest, lasts in ((7200, 3600, 7200), (60, 86_400, 86_400)):
        settings = load_settings({"turn_url": [TURN], "turn_ttl": ttl, "longest_call": longest})
        assert settings.turn is not None
        assert settings.turn.ttl == lasts
    assert complaint(turn_ttl="59") == "--turn-ttl is '59'; it must be a whole number from 60 to 604800."


def test_a_range_of_ports_is_checked() -> None:
    assert load_settings({"udp_ports": "50000-50100"}).udp_range == range(50_000, 50_101)
    assert Settings().udp_range is None
    assert complaint(udp_ports="80-90") == (
        "--udp-ports is '80-90'; it must look like 50000-50100, from 1024 to 65535."
    )


def test_an_engine_gets_what_was_chosen_for_it() -> None:
    settings = Settings(
        tts="openai", tts_model="m", tts_base_url="http://a/v1/", tts_voice="v", language="en"
    )
    chosen = settings.engine("tts")
    assert (chosen.name, chosen.model, chosen.base_url, chosen.voice, chosen.language, chosen.device) == (
        ("openai", "m", "http://a/v1", "v", "en", "auto")
    )
    assert settings.engine("llm").name == "llama-cpp"
