"""A git bundle as a source: what is read of it, and how little a damaged one does."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from reconciler.api.errors import ModelError, SourceError, UsageError
from reconciler.loop.journal import SourceJournal
from reconciler.models.beside import find_beside
from reconciler.models.scheme import FetchContext, ListRequest
from reconciler.models.sources import list_files
from reconciler.source.bundle import BundleSource
from reconciler.source.git import GitSource
from reconciler.source.history import HistoryFile
from reconciler.source.open import open_source
from reconciler.source.verdict import Course
from tests.support.fleets import model
from tests.support.repos import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.create(tmp_path / "far")
    repo.publish({"a.yaml": model("a")})
    return repo


def bundled(repo: Repo, file: Path, *what: str) -> Path:
    """Write the bundle as whoever carries it would: whole, then renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name("half")
    repo.git("bundle", "create", "-q", str(half), *(what or ("HEAD", "--all")))
    return half.replace(file)


def follow(file: Path, **options: str) -> BundleSource:
    return BundleSource(file, cache_dir=file.parent.parent / "cache", **options)


def test_a_replaced_bundle_is_a_new_head(repo: Repo, tmp_path: Path) -> None:
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle")
    source = follow(file)
    first = source.fetch()
    repo.publish({"b.yaml": model("b")})
    bundled(repo, file)

    second = source.fetch()

    assert [f.path for f in first.yaml_files()] == ["a.yaml"]
    assert [f.path for f in second.yaml_files()] == ["a.yaml", "b.yaml"]
    assert source.is_ancestor(first.revision, second.revision)
    assert source.fetch() is second


def test_a_bundle_has_the_history_of_a_remote_an_older_one_is_held(
    repo: Repo, tmp_path: Path
) -> None:
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle")
    shutil.copy(file, tmp_path / "old")
    repo.publish({"b.yaml": model("b")})
    bundled(repo, file)
    source = follow(file)
    journal = SourceJournal(HistoryFile(tmp_path / "history.json"), source)
    _note_applied(journal, source.fetch().revision)
    shutil.copy(tmp_path / "old", file)

    verdict = journal.accept(source.fetch())

    assert (verdict.course, verdict.take) == (Course.OLDER, False)
    assert journal.last_good() is not None


def _note_applied(journal: SourceJournal, revision: str) -> None:
    from reconciler.loop.desired import Desired, no_facts
    from reconciler.source.load import reader

    checkout = journal._source.fetch()
    assert checkout.revision == revision
    loaded = reader()(checkout, frozenset())
    assert loaded.fleet
    journal.applied(Desired.of(checkout, loaded, loaded.fleet, no_facts))


@pytest.mark.parametrize("what", [("main",), ("HEAD", "main"), ("--all",), ("HEAD",)])
def test_without_a_ref_it_is_the_head_or_the_only_branch(
    repo: Repo, tmp_path: Path, what: tuple[str, ...]
) -> None:
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle", *what)

    assert follow(file).fetch().revision == repo.head()


def test_of_several_branches_without_a_head_one_has_to_be_named(repo: Repo, tmp_path: Path) -> None:
    repo.git("branch", "other")
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle", "main", "other")

    with pytest.raises(SourceError, match="branches main, other and no HEAD; name one with --ref"):
        follow(file).fetch()
    assert follow(file, ref="other").fetch().revision == repo.head()
    assert [follow(file, ref=ref).ref for ref in (None, "other")] == ["HEAD", "other"]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.9, 0.99])
def test_half_a_bundle_is_a_lost_source_and_a_whole_one_is_followed_again(
    repo: Repo, tmp_path: Path, share: float
) -> None:
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle")
    source = follow(file)
    before = source.fetch().revision
    repo.publish({"b.yaml": model("b")})
    whole = bundled(repo, tmp_path / "stick" / "next").read_bytes()

    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(SourceError, match="copy it again"):
        source.fetch()
    kept = source.at(before)
    file.write_bytes(whole)

    assert [f.path for f in kept.yaml_files()] == ["a.yaml"]
    assert source.fetch().revision == repo.head()


def test_a_damaged_bundle_is_a_lost_source(repo: Repo, tmp_path: Path) -> None:
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle")
    data = bytearray(file.read_bytes())
    data[-40] ^= 0xFF
    file.write_bytes(data)

    with pytest.raises(SourceError, match="if the file is damaged"):
        follow(file).fetch()


def test_a_bundle_that_builds_on_another_needs_that_one_first(repo: Repo, tmp_path: Path) -> None:
    base = bundled(repo, tmp_path / "stick" / "fleet.bundle").read_bytes()
    old = repo.head()
    repo.publish({"b.yaml": model("b")})
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle", f"{old}..main")
    more = file.read_bytes()

    with pytest.raises(SourceError, match=f"builds on commit {old[:12]}"):
        follow(file).fetch()
    file.write_bytes(base)
    follow(file).fetch()
    file.write_bytes(more)

    assert follow(file).fetch().revision == repo.head()


def test_a_file_is_opened_as_a_bundle_by_its_name_or_its_bytes(repo: Repo, tmp_path: Path) -> None:
    named = bundled(repo, tmp_path / "stick" / "fleet.bundle")
    plain = bundled(repo, tmp_path / "stick" / "fleet")
    cache = tmp_path / "cache"

    assert isinstance(open_source(str(named), cache_dir=cache), BundleSource)
    assert open_source(str(plain), cache_dir=cache).fetch().revision == repo.head()
    (tmp_path / "stick" / "text").write_text("no bundle")
    with pytest.raises(UsageError, match="not a git bundle"):
        open_source(str(tmp_path / "stick" / "text"), cache_dir=cache)


def test_a_bundle_that_is_gone_is_a_lost_source_once_it_was_fetched(
    repo: Repo, tmp_path: Path
) -> None:
    file = bundled(repo, tmp_path / "stick" / "fleet.bundle")
    cache = tmp_path / "cache"
    revision = open_source(str(file), cache_dir=cache).fetch().revision
    file.unlink()

    source = open_source(str(file), cache_dir=cache)

    assert isinstance(source, BundleSource)
    with pytest.raises(SourceError, match="no such file"):
        source.fetch()
    assert source.at(revision).revision == revision


def test_a_folder_that_is_gone_is_a_lost_source_only_if_something_of_it_was_applied(
    repo: Repo, tmp_path: Path
) -> None:
    cache, plain = tmp_path / "cache", tmp_path / "plain"
    repo.publish({"lab/b.yaml": model("b")})
    lab = repo.work / "lab"
    known = open_source(str(lab), cache_dir=cache).fetch().revision
    shutil.rmtree(repo.work)

    for path, applied_from in ((plain, plain), (lab, repo.work)):
        with pytest.raises(SourceError, match="no such folder"):
            open_source(str(path), cache_dir=cache)
        source = open_source(str(path), cache_dir=cache, applied_from=str(applied_from))
        with pytest.raises(SourceError):
            source.fetch()

    assert isinstance(source, GitSource)
    assert [f.path for f in source.at(known).yaml_files()] == ["b.yaml"]
    plain.mkdir()
    (plain / "a.yaml").write_text(model("a"))
    back = open_source(str(plain), cache_dir=cache, applied_from=str(plain)).fetch()
    assert [f.path for f in back.yaml_files()] == ["a.yaml"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://models.test/x/tiny.gguf?download=1", "tiny.gguf"),
        ("hf://org/repo/tiny.gguf@main", "tiny.gguf"),
        ("hf://org/tiny@0f1e2d", "tiny"),
    ],
)
def test_a_model_beside_the_bundle_is_found_by_the_last_name_of_its_source(
    tmp_path: Path, source: str, name: str
) -> None:
    (tmp_path / name).touch()

    assert find_beside(tmp_path, source, None) == (tmp_path / name).as_uri()


def test_a_model_of_a_copied_store_is_found_by_its_digest_first(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"model").hexdigest()
    stored = tmp_path / "sha256" / digest / "tiny.gguf"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"model")
    (stored.parent / ".model.json").touch()
    (tmp_path / "tiny.gguf").write_bytes(b"another")

    found = find_beside(tmp_path, "https://models.test/tiny.gguf", digest)

    assert found == stored.as_uri()


def test_a_model_that_lies_beside_asks_no_host(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"model")
    context = FetchContext(allowed_hosts=(), beside=tmp_path)

    listing = list_files(ListRequest("https://models.test/tiny.gguf", context=context))

    assert [file.source for file in listing.files] == [(tmp_path / "tiny.gguf").as_uri()]
    with pytest.raises(ModelError, match="allowedHosts"):
        list_files(ListRequest("https://models.test/other.gguf", context=context))
