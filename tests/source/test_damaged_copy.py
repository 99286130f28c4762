"""The local copy of a repository after a crash or a bad disk: each of its files, each damage."""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError
from reconciler.source.git import GitSource
from tests.support.damage import DAMAGES, last_week
from tests.support.fleets import model
from tests.support.repos import Repo, run_git

BIG = bytes(random.Random(7).randbytes(300_000))
HOLDER = "/state/history.json"
READ = {
    "a.yaml": model("a").encode(),
    "sub/b.yaml": model("b").encode(),
    "sub/c.yaml": model("c").encode(),
}


@pytest.fixture(autouse=True)
def _no_configuration_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


class Copied:
    """A repository, and a local copy of it that has packs, loose objects and packed refs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = Repo.create(folder)
        self.older = self.repo.publish({"a.yaml": READ["a.yaml"], "model.gguf": BIG})
        source = self.source()
        source.fetch()
        source.keep(self.older, HOLDER)
        self.copy = source.mirror.folder
        run_git(self.copy, "gc", "-q")
        shutil.copytree(self.copy, folder / "last-week")
        self.head = self.repo.publish({name: READ[name] for name in READ if name != "a.yaml"})
        self.source().fetch()
        shutil.copytree(self.copy, folder / "good")

    def source(self) -> GitSource:
        return GitSource(str(self.repo.remote), cache_dir=self.folder / "cache")

    def files(self) -> list[Path]:
        """The files of the copy, relative to it."""
        good = self.folder / "good"
        return sorted(f.relative_to(good) for f in good.rglob("*") if f.is_file())

    def restore(self) -> None:
        shutil.rmtree(self.copy)
        shutil.copytree(self.folder / "good", self.copy)


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


def contents(source: GitSource, revision: str | None = None) -> dict[str, bytes]:
    """All that a fleet reads of a revision, by default of the newest one."""
    checkout = source.fetch() if revision is None else source.at(revision)
    read = {file.path: file.data for file in checkout.yaml_files()}
    with checkout.open("model.gguf") as stream:
        read["model.gguf"] = stream.read()
    assert checkout.model_file("model.gguf").size_bytes == len(BIG)
    return read


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_each_damaged_file_of_a_copy_costs_one_line_and_no_revision(
    copied: Copied, damage: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    mended = set()
    for file in copied.files():
        copied.restore()
        shutil.rmtree(copied.copy.parent / "sha256", ignore_errors=True)
        damage(copied.copy / file, copied.folder / "last-week" / file)
        caplog.clear()

        assert contents(copied.source()) == {**READ, "model.gguf": BIG}, file
        lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(lines) <= 1, (file, lines)
        assert all(line.startswith(f"{copied.copy}: ") for line in lines)
        if lines:
            mended.add(file.parts[0])
            run_git(copied.copy, "fsck", "--strict")
            assert copied.source().mirror.resolve(copied.older) == copied.older
    assert sorted(os.listdir(copied.copy.parent)) == sorted(
        {copied.copy.name, copied.copy.with_suffix(".flock").name, "sha256"}
    )
    assert ("objects" in mended) == (damage is not last_week)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_without_the_remote_a_copy_with_whole_objects_gives_what_it_has(
    copied: Copied, damage: Callable[[Path, Path], None]
) -> None:
    copied.repo.remote.rename(copied.folder / "gone")
    for file in ("HEAD", "config", "packed-refs"):
        copied.restore()
        damage(copied.copy / file, copied.folder / "last-week" / file)

        assert contents(copied.source(), copied.head) == {**READ, "model.gguf": BIG}, file
        assert contents(copied.source(), copied.older)["a.yaml"] == READ["a.yaml"], file


def test_without_the_remote_a_damaged_copy_stays_and_is_named(copied: Copied) -> None:
    """The model of both commits is damaged; their documents can still be read."""
    pack = next(copied.copy.glob("objects/pack/*.pack"))
    data = bytearray(pack.read_bytes())
    data[-20_000] ^= 0xFF
    pack.chmod(0o644)
    pack.write_bytes(data)
    gone = copied.repo.remote.rename(copied.folder / "gone")
    source = copied.source()

    with pytest.raises(OSError, match=f"^{copied.copy}: this local copy is damaged .* anew: .*fl"):
        contents(source, copied.older)
    assert [f.path for f in source.at(copied.older).yaml_files()] == ["a.yaml"]

    gone.rename(copied.repo.remote)
    assert contents(copied.source(), copied.older)["model.gguf"] == BIG


def test_a_commit_that_was_forced_away_outlives_a_damage_elsewhere(copied: Copied) -> None:
    source = copied.source()
    source.keep(copied.head, HOLDER)
    copied.repo.git("reset", "-q", "--hard", copied.older)
    copied.repo.write("d.yaml", model("d"))
    newest = copied.repo.commit(push=False)
    copied.repo.push(force=True)
    run_git(copied.repo.remote, "gc", "-q", "--prune=now")
    source.fetch()
    broken = copied.copy / "objects" / newest[:2] / newest[2:]
    broken.chmod(0o644)
    broken.write_bytes(b"")

    assert set(contents(copied.source())) == {"a.yaml", "d.yaml", "model.gguf"}
    assert contents(copied.source(), copied.head) == {**READ, "model.gguf": BIG}


def test_a_replacement_that_was_killed_half_way_is_taken_back(copied: Copied) -> None:
    copied.copy.rename(copied.copy.with_suffix(".old"))
    copied.copy.with_suffix(".new").mkdir()

    assert contents(copied.source()) == {**READ, "model.gguf": BIG}
    assert contents(copied.source(), copied.older)["a.yaml"] == READ["a.yaml"]
    assert not copied.copy.with_suffix(".new").exists()


def test_a_damaged_remote_is_blamed_and_the_whole_copy_stays(copied: Copied) -> None:
    head = copied.repo.publish({"d.yaml": model("d")})
    before = copied.copy.stat().st_ino
    (copied.repo.remote / "objects" / head[:2] / head[2:]).unlink()

    with pytest.raises(SourceError, match=f"^{copied.repo.remote}: "):
        copied.source().fetch()
    assert copied.copy.stat().st_ino == before
    assert contents(copied.source(), copied.head) == {**READ, "model.gguf": BIG}
