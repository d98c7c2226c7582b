"""Every setting of the server, documented where it is declared.

One frozen object, made once at the start. :mod:`server.settings_sources` fills it from flags, the
environment and a file; constructed directly, it takes exactly what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from server.ice import IceServer, parse_ice_server
from server.keys import EPHEMERAL, default_keys_file
from server.ports import parse_ports
from server.records.standard import check_receiver, secret_key
from server.turn import RelayFor, Turn, parse_turn_url
from units.config import INSTRUCTIONS
from units.engines.base import EngineSettings
from units.engines.registry import available
from units.realtime.config import LOCKABLE
from units.realtime.servers import allows

ENV_PREFIX = "DUOLOGUE_"


def _split(value: object) -> object:
    """In an environment variable, a list is separated by commas."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, Sequence):
        return value
    return tuple(piece.strip() for part in parts for piece in str(part).split(",") if piece.strip())


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Device = Literal["auto", "cpu", "cuda"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


def _in(group: str, default: Any, description: str, **limits: Any) -> Any:
    """A setting of ``group``, which is its heading in the help and in the documentation."""
    return Field(default, description=description, json_schema_extra={"group": group}, **limits)


class Settings(BaseSettings):
    """What a person chose. Empty texts mean "the engine's own default"."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        str_strip_whitespace=True,
        protected_namespaces=(),
    )

    host: str = _in(
        "Server",
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 for all of them. Browsers give pages the microphone only on "
        "localhost or over https.",
        min_length=1,
    )
    port: int = _in("Server", 8080, "TCP port to listen on; 0 takes any free one.", ge=0, le=65535)
    num_pipelines: int = _in(
        "Server",
        4,
        "Conversations at once. The models are shared, so one more costs a few megabytes.",
        ge=1,
        le=1000,
    )
    grace: float = _in(
        "Server",
        20.0,
        "Seconds that calls get to finish what is being said when the server is stopped; those in which "
        "nothing is going on end at once.",
        ge=0,
        le=3600,
    )
    log_level: LogLevel = _in("Server", "info", "How much to log: debug, info, warning or error.")
    log_format: LogFormat = _in("Server", "text", "How to log: text, or json, which is one object a line.")

    api_key: SecretStr = _in(
        "Access",
        SecretStr(""),
        "A key that clients must bring, of 16 characters or more; duologue keys makes better ones, each "
        "with limits of its own. With any key at all, everything but the page and the health checks needs "
        "one.",
    )
    keys_file: Path | None = _in(
        "Access",
        None,
        "File of the keys that duologue keys makes. Default: duologue/keys.json in the user's configuration "
        "folder.",
    )
    allow_anonymous: bool = _in(
        "Access",
        False,
        "Listen beyond this machine without a key: whoever reaches the port can use the server.",
    )
    allow_origin: Texts = _in(
        "Access",
        (),
        "Address, such as https://app.example.org, whose pages may use the server without a key, and under "
        "whose name it may be reached. Repeat the flag, or separate by commas, for several; * for all. "
        "Always allowed: the server's own page, on localhost and on addresses of digits.",
    )
    sessions_per_minute: int = _in(
        "Access",
        60,
        "Sessions that may begin in a minute with one key, unless the key says otherwise; without keys, "
        "from one address. 0: any number.",
        ge=0,
        le=100_000,
    )
    longest_call: int = _in("Access", 3600, "Seconds after which a session is ended.", ge=10, le=86_400)
    idle_timeout: int = _in(
        "Access",
        600,
        "Seconds after which a session is ended in which nobody speaks and nothing is sent but silence. "
        "0: never.",
        ge=0,
        le=86_400,
    )
    lock: Texts = _in(
        "Access",
        (),
        "Setting of a session that clients may not change, such as instructions or tools: what they send "
        "for it is passed over. Repeat the flag, or separate by commas, for several.",
    )

    instructions: str = _in(
        "Conversation",
        INSTRUCTIONS,
        "What the assistant is told about itself, unless the client says something else.",
    )
    language: str = _in(
        "Conversation",
        "en",
        "Language spoken, such as en or de. auto: the recogniser finds out, which goes wrong on short words.",
        max_length=35,
    )
    live_transcripts: bool = _in(
        "Conversation", True, "Show words while they are being spoken, if the recogniser is fast enough."
    )

    strict_protocol: bool = _in(
        "Conversation",
        False,
        "Refuse what OpenAI's service refuses, such as the beta's flat sessions, and make no sense of it.",
    )
    mcp_server: Texts = _in(
        "Conversation",
        (),
        "MCP server that clients may have the model use, such as https://tools.example.org/mcp: this "
        "address and what is below it. Repeat the flag, or separate by commas, for several. None by "
        "default: clients cannot have this server connect anywhere.",
    )

    record_calls: Path | None = _in(
        "Records",
        None,
        "Folder for the sound of every call, an Ogg Opus file each: the caller on the left, the assistant on "
        "the right. The page says so; telling others who call is up to you. Off by default.",
    )
    transcripts: Path | None = _in(
        "Records",
        None,
        "Folder for what was said in every call, a JSON Lines file each; the page says so. Off by default.",
    )
    webhook_secret: SecretStr = _in(
        "Records", SecretStr(""), "Secret that signs what is sent to the webhook, such as whsec_..."
    )
    webhook: str = _in(
        "Records",
        "",
        "Address, such as https://example.org/calls, that is sent what was said in every call, as Standard "
        "Webhooks; the page says so. http only to localhost and private addresses in digits. Off by default.",
    )

    device: Device = _in(
        "Engines", "auto", "Where the models run: auto (CUDA when there is a GPU), cpu or cuda."
    )
    models_dir: Path | None = _in(
        "Engines", None, "Folder of the model store. Default: duologue/models in the user's cache folder."
    )
    fetch_models: bool = _in(
        "Engines", False, "Fetch models that are missing from the store before loading them."
    )
    vad: str = _in("Engines", "silero", "Voice activity engine: tells speech from everything else.")
    turn_detector: str = _in(
        "Engines",
        "smart-turn",
        "End of turn engine, for sessions with semantic_vad: tells who has finished from who has only "
        "paused. none: silence alone ends a turn.",
    )

    stt: str = _in("Speech to text", "faster-whisper", "Speech recognition engine.")
    stt_model: str = _in(
        "Speech to text", "", "Its model: a name in the model store, a hub id or a local path."
    )
    stt_base_url: str = _in("Speech to text", "", "Server of the openai engine, up to and including /v1.")
    stt_api_key: SecretStr = _in("Speech to text", SecretStr(""), "Key for that server.")

    llm_backend: str = _in("Language model", "llama-cpp", "Language model engine.")
    llm_model: str = _in(
        "Language model",
        "",
        "Its model: a name in the model store, a local path, or the server's name for it.",
    )
    llm_base_url: str = _in(
        "Language model",
        "",
        "Server of the chat-completions and responses engines, up to and including /v1.",
    )
    llm_context: int = _in(
        "Language model",
        0,
        "Tokens that the model is shown at most, instructions and tools included; of a longer conversation "
        "the oldest turns are left out. 0: 3072 for llama-cpp (memory grows with it), 28672 for servers, "
        "what the model was made for with transformers.",
        ge=0,
        le=10_000_000,
    )
    llm_api_key: SecretStr = _in("Language model", SecretStr(""), "Key for that server.")

    tts: str = _in("Text to speech", "kokoro", "Speech synthesis engine.")
    tts_model: str = _in(
        "Text to speech", "", "Its model: a name in the model store, a hub id or a local path."
    )
    tts_base_url: str = _in("Text to speech", "", "Server of the openai engine, up to and including /v1.")
    tts_voice: str = _in("Text to speech", "", "Voice to speak with, unless the client chooses another.")
    tts_api_key: SecretStr = _in("Text to speech", SecretStr(""), "Key for that server.")

    ice_server: Texts = _in(
        "Network",
        (),
        "STUN or TURN server for peers behind NAT, such as stun:stun.example.org:3478 or "
        "turn:USER:PASSWORD@turn.example.org:3478?transport=tcp. Repeat the flag, or separate by commas, "
        "for several. None by default: nobody outside is asked.",
    )
    public_ip: str = _in(
        "Network", "", "Address under which peers reach this machine, when a 1:1 NAT hides it."
    )

    udp_ports: str = _in(
        "Network",
        "",
        "Range of UDP ports for media, such as 50000-50100; a call takes one on each address of the machine. "
        "Empty: any free ones.",
    )
    turn_secret: SecretStr = _in(
        "Network", SecretStr(""), "Secret shared with the TURN server, 16 characters or more."
    )
    turn_secret_file: Path | None = _in("Network", None, "File that holds that secret, instead.")
    turn_url: Texts = _in(
        "Network",
        (),
        "TURN server that shares the secret, such as turn:turn.example.org, "
        "turn:turn.example.org?transport=tcp or turns:turn.example.org:443. Repeat the flag, or separate by "
        "commas, for several; this server takes its own relays from the first that answers. turn/README.md "
        "tells how to set one up.",
    )
    turn_for: RelayFor = _in(
        "Network",
        "both",
        "Who takes relays: callers (the page is given logins), the server (for callers that know nothing of "
        "TURN, when this server is behind NAT), or both.",
    )
    turn_ttl: int = _in(
        "Network",
        7200,
        "Seconds for which a login for the TURN server works; as many as a call may last (--longest-call) at "
        "the least, whatever is said here.",
        ge=60,
        le=604_800,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is given: the sources are read, and told apart in errors, in settings_sources."""
        return (init_settings,)

    @field_validator("vad", "turn_detector", "stt", "llm_backend", "tts")
    @classmethod
    def _known_engine(cls, value: str, info: ValidationInfo) -> str:
        names = available(engine_kind(str(info.field_name)))
        if value not in names:
            raise ValueError(f"must be one of: {', '.join(names)}")
        return value

    @field_validator("stt_base_url", "llm_base_url", "tts_base_url")
    @classmethod
    def _http(cls, value: str) -> str:
        if value and not (urlsplit(value).scheme in ("http", "https") and urlsplit(value).hostname):
            raise ValueError("must be an address like http://localhost:11434/v1")
        return value.rstrip("/")

    @field_validator("ice_server")
    @classmethod
    def _ice(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for server in value:
            try:
                parse_ice_server(server)
            except ValueError:
                raise ValueError("must look like stun:HOST:PORT or turn:USER:PASSWORD@HOST:PORT") from None
        return value

    @field_validator("mcp_server")
    @classmethod
    def _mcp(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for server in value:
            if "?" in server or "#" in server or not allows((server,), server):
                raise ValueError("must be an address like https://tools.example.org/mcp")
        return value

    @field_validator("api_key")
    @classmethod
    def _key(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value()
        if key and (not re.fullmatch(r"[A-Za-z0-9._~-]{16,}", key) or key.startswith(EPHEMERAL)):
            raise ValueError(
                "must be 16 characters or more, of letters, digits, '.', '_', '~' and '-', "
                f"and not begin with {EPHEMERAL}"
            )
        return value

    @field_validator("allow_origin")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        origins = tuple(origin.lower().rstrip("/") for origin in value)
        for origin in origins:
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", origin):
                raise ValueError("must be an address like https://app.example.org, or *")
        return origins

    @field_validator("lock")
    @classmethod
    def _lockable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not set(value) <= LOCKABLE:
            raise ValueError(f"must be of: {', '.join(sorted(LOCKABLE))}")
        return value

    @field_validator("public_ip")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            return str(ip_address(value)) if value else value
        except ValueError:
            raise ValueError("must be an IP address like 203.0.113.7") from None

    @field_validator("udp_ports")
    @classmethod
    def _ports(cls, value: str) -> str:
        if value:
            parse_ports(value)
        return value

    @field_validator("turn_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        return SecretStr(_checked_secret(value.get_secret_value())) if value else value

    @field_validator("turn_secret_file")
    @classmethod
    def _readable(cls, value: Path | None) -> Path | None:
        if value is not None:
            _read_secret(value)
        return value

    @field_validator("turn_url")
    @classmethod
    def _turn(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for url in value:
            try:
                parse_turn_url(url)
            except ValueError:
                raise ValueError(
                    "must look like turn:HOST, turn:HOST?transport=tcp or turns:HOST:443"
                ) from None
        secrets = [info.data.get("turn_secret", True), info.data.get("turn_secret_file", True)]
        if value and not any(secrets):
            raise ValueError(f"needs the secret, in {ENV_PREFIX}TURN_SECRET or --turn-secret-file")
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _signs(cls, value: SecretStr) -> SecretStr:
        if value:
            secret_key(value.get_secret_value())
        return value

    @field_validator("webhook")
    @classmethod
    def _receiver(cls, value: str, info: ValidationInfo) -> str:
        if value:
            check_receiver(value)
            if not info.data.get("webhook_secret", True):
                raise ValueError(f"needs a secret, in {ENV_PREFIX}WEBHOOK_SECRET")
        return value

    @property
    def udp_range(self) -> range | None:
        """The range of UDP ports for media, if there is one."""
        return parse_ports(self.udp_ports) if self.udp_ports else None

    @property
    def turn(self) -> Turn | None:
        """The TURN servers that share a secret with this one."""
        if not self.turn_url:
            return None
        secret = self.turn_secret.get_secret_value()
        if not secret and self.turn_secret_file:
            secret = _read_secret(self.turn_secret_file)
        return Turn(self.turn_url, secret, max(self.turn_ttl, self.longest_call), self.turn_for)

    @property
    def ice_servers(self) -> tuple[IceServer, ...]:
        """The ICE servers, parsed."""
        return tuple(parse_ice_server(server) for server in self.ice_server)

    @property
    def keys_path(self) -> Path:
        """The file of the keys."""
        return self.keys_file or default_keys_file()

    @property
    def model_name(self) -> str:
        """What clients see as ``session.model``."""
        return Path(self.llm_model).name or self.llm_backend

    def engine(self, kind: Literal["vad", "turn", "stt", "llm", "tts"]) -> EngineSettings:
        """What was chosen for the engine of ``kind``."""
        if kind in ("vad", "turn"):
            name = self.vad if kind == "vad" else self.turn_detector
            return EngineSettings(name, device=self.device, models_dir=self.models_dir)
        key: SecretStr = getattr(self, f"{kind}_api_key")
        return EngineSettings(
            name=self.llm_backend if kind == "llm" else getattr(self, kind),
            model=getattr(self, f"{kind}_model"),
            base_url=getattr(self, f"{kind}_base_url"),
            api_key=key.get_secret_value(),
            language="" if self.language == "auto" else self.language,
            voice=self.tts_voice if kind == "tts" else "",
            context=self.llm_context if kind == "llm" else 0,
            device=self.device,
            models_dir=self.models_dir,
        )


def _read_secret(path: Path) -> str:
    try:
        return _checked_secret(path.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"cannot be read: {reason}") from None


def _checked_secret(secret: str) -> str:
    """It goes into coturn's configuration, so it must be one word. Errors do not show it."""
    if not re.fullmatch(r"[!-~]{16,}", secret):
        raise ValueError("must hold 16 characters or more, and no spaces: openssl rand -hex 32 makes one")
    return secret


def engine_kind(name: str) -> str:
    """Kind of engine, as in the registry, that the setting ``name`` chooses."""
    return {"llm_backend": "llm", "turn_detector": "turn"}.get(name, name)


def group_of(name: str) -> str:
    """Heading under which the setting ``name`` is documented."""
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["group"]) if isinstance(extra, dict) else ""


def is_secret(name: str) -> bool:
    """True for keys: they come from the environment only, so that no process list or file shows them."""
    return Settings.model_fields[name].annotation is SecretStr
