"""The model store: a folder of models, each a folder of files whose SHA-256 is known.

::

    ROOT/whisper-base/model.bin      complete and checked; appears by an atomic rename
    ROOT/whisper-base/.checked.json  size, modification time and SHA-256 as last checked
    ROOT/.fetching/whisper-base/     what was downloaded so far; deleted once the model is complete
    ROOT/.fetching/whisper-base.lock held while fetching

Nothing here touches the network but :meth:`ModelStore.fetch`, and that only when a file is missing or
wrong. Hashing half a gigabyte at every start would cost a second, hence the stamp.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from units.models import packages
from units.models.catalogue import CATALOGUE, Model, ModelFile, Parts, Web
from units.models.errors import (
    FetchFailed,
    ModelCorrupt,
    ModelError,
    ModelMissing,
    SourceFailed,
    UnknownModel,
)
from units.models.web import WebClient

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all, of one model."""
State = Literal["present", "absent", "partial", "corrupt"]

_STAMP = ".checked.json"
_FILES = (".gguf", ".onnx", ".bin")


def default_root() -> Path:
    """``DUOLOGUE_MODELS_DIR``, or ``duologue/models`` in the user's cache folder (XDG base directories)."""
    if chosen := os.environ.get("DUOLOGUE_MODELS_DIR"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "duologue" / "models"


class ModelStore:
    """Models on disk. Safe to use from several threads and processes."""

    def __init__(self, root: Path | None = None, catalogue: Mapping[str, Model] = CATALOGUE) -> None:
        self.root = root or default_root()
        self._catalogue = catalogue
        self._web = WebClient()

    def list(self) -> list[tuple[Model, State]]:
        """Every known model and how it stands in this store."""
        return [(model, self.state(model.name)) for model in self._catalogue.values()]

    def model(self, name: str) -> Model:
        """The catalogue's entry. Raises UnknownModel."""
        try:
            return self._catalogue[name]
        except KeyError:
            known = ", ".join(self._catalogue)
            raise UnknownModel(f"There is no model named {name!r}; known models: {known}.") from None

    def state(self, name: str) -> State:
        """How the model stands, without touching the network."""
        model = self.model(name)
        states = {self._file_state(model, file) for file in model.files}
        if "corrupt" in states:
            return "corrupt"
        return states.pop() if len(states) == 1 else "partial"

    def path(self, name: str) -> Path:
        """The folder of a complete model. Raises ModelMissing or ModelCorrupt saying what to do."""
        state = self.state(name)
        if state == "corrupt":
            raise ModelCorrupt(
                f"A file of the model {name} in {self.root} is damaged; run: duologue models fetch {name}"
            )
        if state != "present":
            raise ModelMissing(f"The model {name} is not in {self.root}; run: duologue models fetch {name}")
        return self.root / name

    def locate(self, model: str) -> Path:
        """A local path if ``model`` is one, else :meth:`path`: what engines call with a person's choice.

        Raises ModelMissing for a path where nothing is, and UnknownModel for what may be a hub id.
        """
        local = Path(model).expanduser()
        if model in self._catalogue:
            return self.path(model)
        if local.exists():
            return local
        if _is_path(model):
            raise ModelMissing(f"There is no such file or folder: {model}")
        if "/" in model:
            known = ", ".join(self._catalogue)
            raise UnknownModel(f"There is no such file or model: {model}; known models: {known}.")
        return self.path(model)

    def verify(self, name: str) -> None:
        """Hash every file again. Raises ModelMissing or ModelCorrupt."""
        if self.state(name) != "absent":
            (self.root / name / _STAMP).unlink(missing_ok=True)
        self.path(name)

    def fetch(self, name: str, progress: Progress | None = None) -> Path:
        """Make the model complete and return its folder. Blocks; takes up what an earlier call left.

        Raises UnknownModel, or FetchFailed with one sentence.
        """
        model = self.model(name)
        if self.state(name) != "present":
            with _explained(model, self.root):
                scratch = self.root / ".fetching" / name
                scratch.mkdir(parents=True, exist_ok=True)
                with self._locked(scratch):
                    self._complete(model, scratch, progress or (lambda done, total: None))
        return self.path(name)

    @contextmanager
    def _locked(self, scratch: Path) -> Iterator[None]:
        lock = FileLock(str(scratch) + ".lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            logger.warning("Another process is fetching %s; waiting for it", scratch.name)
            lock.acquire()
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            yield
        finally:
            lock.release()

    def _complete(self, model: Model, scratch: Path, progress: Progress) -> None:
        done = 0
        for file in model.files:
            if self._file_state(model, file) != "present":

                def report(here: int, before: int = done, most: int = file.size) -> None:
                    progress(before + min(here, most), model.size)

                fetched = self._obtain(file, scratch, report)
                (self.root / model.name).mkdir(exist_ok=True)
                fetched.replace(self.root / model.name / file.name)
                self._stamp(model, file)
            done += file.size
            progress(done, model.size)
        shutil.rmtree(scratch, ignore_errors=True)

    def _obtain(self, file: ModelFile, scratch: Path, report: Callable[[int], None]) -> Path:
        """A checked copy of ``file`` in ``scratch``, from the first source that has it."""
        reasons = []
        for source in file.sources:
            part = scratch / f"{file.name}.{'web' if isinstance(source, Web) else 'joined'}.part"
            try:
                return self._from(source, file, part, scratch, report)
            except SourceFailed as error:
                reasons.append(str(error))
                logger.debug("%s: %s", file.name, error)
        raise FetchFailed(f"{file.name} could not be fetched: {'; '.join(reasons)}.")

    def _from(
        self, source: Web | Parts, file: ModelFile, part: Path, scratch: Path, report: Callable[[int], None]
    ) -> Path:
        for _ in range(2):
            resumed = part.exists()
            if isinstance(source, Web):
                self._web.download(source.url, part, file.size, report)
            else:
                packages.join(source.parts, scratch / "packages", part, report)
            if _sha256(part) == file.sha256:
                return part
            part.unlink()
            if not resumed:
                break
        shutil.rmtree(scratch / "packages", ignore_errors=True)
        raise SourceFailed(f"its SHA-256 from {_label(source)} is not {file.sha256}")

    def _file_state(self, model: Model, file: ModelFile) -> State:
        path = self.root / model.name / file.name
        if not path.exists():
            return "absent"
        status = path.stat()
        if status.st_size != file.size:
            return "corrupt"
        if self._stamps(model).get(file.name) == [status.st_size, status.st_mtime_ns, file.sha256]:
            return "present"
        if _sha256(path) != file.sha256:
            return "corrupt"
        self._stamp(model, file)
        return "present"

    def _stamps(self, model: Model) -> dict[str, object]:
        try:
            stamps = json.loads((self.root / model.name / _STAMP).read_text())
        except (OSError, ValueError):
            return {}
        return stamps if isinstance(stamps, dict) else {}

    def _stamp(self, model: Model, file: ModelFile) -> None:
        """Remember that the file was found right. In a read-only store it is hashed again next time."""
        folder = self.root / model.name
        status = (folder / file.name).stat()
        stamps = self._stamps(model) | {file.name: [status.st_size, status.st_mtime_ns, file.sha256]}
        fresh = folder / f"{_STAMP}.{os.getpid()}"
        try:
            fresh.write_text(json.dumps(stamps, indent=1))
            fresh.replace(folder / _STAMP)
        except OSError as error:
            logger.debug("No stamp for %s: %s", file.name, error)


@contextmanager
def _explained(model: Model, root: Path) -> Iterator[None]:
    """Turn what the operating system says into one sentence."""
    try:
        yield
    except FetchFailed as error:
        raise FetchFailed(f"The model {model.name} could not be fetched. {error}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            need = f"about {2 * model.size / 1e6:.0f} MB"
            text = (
                f"No space left in {root} for the model {model.name}; free {need} or set DUOLOGUE_MODELS_DIR."
            )
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            text = f"{root} cannot be written to; change its permissions or set DUOLOGUE_MODELS_DIR."
        else:
            text = f"The model {model.name} could not be stored in {root}: {error}."
        raise FetchFailed(text) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_path(model: str) -> bool:
    """Whether a person who wrote this can only have meant a file or folder, not ``owner/name`` on a hub."""
    return model.endswith(_FILES) or model.startswith(("/", "~", ".")) or model.count("/") > 1


def _label(source: Web | Parts) -> str:
    return source.url if isinstance(source, Web) else source.parts[0].package


__all__ = ["ModelError", "ModelStore", "Progress", "State", "default_root"]
