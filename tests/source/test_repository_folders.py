"""Models in the fleet's repository that are more than one file: folders and split GGUF files.

A commit, the working tree and a plain folder must agree on them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from agent.models.store import ModelStore
from reconciler.api.errors import DownloadFailed, SourceError
from reconciler.api.model import Model
from reconciler.fleet.model_file import model_file
from reconciler.gguf.header import combine, read_path
from reconciler.models.scheme import FetchContext, ListRequest
from reconciler.models.sources import list_files
from reconciler.source.checkout import Checkout
from reconciler.source.load import Loaded, reader
from reconciler.source.open import open_source
from tests.support.fleets import model, small_fleet, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.repos import Repo
from tests.support.wait import wait_for

FILES = {"config.json": b"{}", "model.safetensors": b"\x00" * 5000, "sub/x.json": b"1"}
MODEL = """\
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {name: m}
spec: {source: "%s", %s}
"""
Fill = Callable[[str, bytes | str], object]


def checkouts(tmp_path: Path, fill: Callable[[Fill], None]) -> list[Checkout]:
    """The same files as a commit, as a working tree and as a plain folder."""
    repo = Repo.create(tmp_path / "git")
    fill(repo.write)
    repo.commit()
    plain = tmp_path / "plain"
    plain.mkdir()

    def write(path: str, data: bytes | str) -> None:
        (plain / path).parent.mkdir(parents=True, exist_ok=True)
        (plain / path).write_bytes(data.encode() if isinstance(data, str) else data)

    fill(write)
    where, cache = str(repo.work), tmp_path / "cache"
    return [
        open_source(where, cache_dir=cache).fetch(),
        open_source(where, cache_dir=cache, working_tree=True).fetch(),
        open_source(str(plain), cache_dir=cache).fetch(),
    ]


def read(checkout: Checkout) -> tuple[Loaded, Model]:
    loaded = reader()(checkout, frozenset())
    assert loaded.fleet is not None, [str(problem) for problem in loaded.problems]
    (model,) = loaded.fleet.all(Model)
    return loaded, model


def messages(checkout: Checkout) -> str:
    return "\n".join(str(problem) for problem in reader()(checkout, frozenset()).problems)


def test_a_folder_is_pinned_by_its_commit_and_comes_out_of_the_checkout(tmp_path: Path) -> None:
    def fill(write: Fill) -> None:
        write("m.yaml", MODEL % ("models/qwen/", "format: mlx"))
        for path, data in (FILES | {".hidden": b"x"}).items():
            write(f"models/qwen/{path}", data)

    digests = set()
    for number, checkout in enumerate(checkouts(tmp_path, fill)):
        loaded, model = read(checkout)
        assert loaded.fleet is not None
        wanted = model_file(model, loaded.fleet)
        assert wanted.size_bytes == sum(map(len, FILES.values()))
        store = ModelStore(tmp_path / f"store{number}")
        context = FetchContext(open_repository=checkout.open, list_repository=checkout.folder)

        store.ensure(wanted, context)
        wait_for(partial(store.lookup, wanted))

        found = store.lookup(wanted)
        assert found is not None
        assert found.digest == wanted.sha256
        assert (found.path / "sub" / "x.json").read_bytes() == b"1"
        assert not (found.path / ".hidden").exists()
        digests.add(found.digest)
    assert len(digests) == 1


def test_a_split_model_is_known_by_all_its_parts_before_it_is_copied(tmp_path: Path) -> None:
    first = tiny_llama(tmp_path / "t.gguf", split_max_tensors=12)
    shards = sorted(tmp_path.glob("t-*-of-*.gguf"))
    whole = combine([read_path(path) for path in shards])

    def fill(write: Fill) -> None:
        write("m.yaml", MODEL % (f"models/{first.name}", ""))
        for path in shards:
            write(f"models/{path.name}", path.read_bytes())

    for checkout in checkouts(tmp_path, fill):
        loaded, model = read(checkout)
        assert loaded.facts[model.ref] == whole


def test_one_part_of_a_split_model_alone_is_refused(tmp_path: Path) -> None:
    first = tiny_llama(tmp_path / "t.gguf", split_max_tensors=8)

    def fill(write: Fill) -> None:
        write("m.yaml", MODEL % ("models/model.gguf", ""))
        write("models/model.gguf", first.read_bytes())

    for checkout in checkouts(tmp_path, fill):
        assert "is split into 3 files, 1 is here" in messages(checkout)


def test_spec_files_chooses_in_a_folder_and_must_mean_something(tmp_path: Path) -> None:
    def fill(write: Fill) -> None:
        write("m.yaml", MODEL % ("models/", 'format: mlx, files: ["config.json", "nothing-*"]'))
        for path, data in FILES.items():
            write(f"models/{path}", data)

    for checkout in checkouts(tmp_path, fill):
        assert "spec.files: no file matches nothing-*; there is config.json" in messages(checkout)


def test_a_link_in_a_models_folder_is_not_followed(tmp_path: Path) -> None:
    def fill(write: Fill) -> None:
        write("m.yaml", MODEL % ("models/", "format: mlx"))
        write("models/config.json", "{}")
        for top in (tmp_path / "git", tmp_path / "plain"):
            for folder in top.rglob("models"):
                if not (folder / "evil.json").is_symlink():
                    (folder / "evil.json").symlink_to("/etc/passwd")

    for checkout in checkouts(tmp_path, fill):
        assert "never followed" in messages(checkout)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("models", "write models/ for the whole of it"),
        ("absent/", "absent"),
        ("models/", "no config.json is among its files"),
    ],
)
def test_a_folder_that_is_no_model_says_what_to_do(
    tmp_path: Path, source: str, reason: str
) -> None:
    def fill(write: Fill) -> None:
        write("m.yaml", MODEL % (source, "format: mlx"))
        write("models/model.safetensors", "x")

    for checkout in checkouts(tmp_path, fill):
        assert reason in messages(checkout)


def test_files_of_a_source_that_names_one_file_have_no_effect(tmp_path: Path) -> None:
    def fill(write: Fill) -> None:
        write("m.yaml", MODEL % ("https://h.example/m.gguf", 'files: ["x"]'))

    for checkout in checkouts(tmp_path, fill):
        assert "spec.files: the source names one file; remove it" in messages(checkout)


def test_a_folder_holds_nothing_of_those_whose_names_begin_alike(tmp_path: Path) -> None:
    others = ("models-old/x.json", "models.json", "models0/x.json", "model/x.json", "a/models/x")

    def fill(write: Fill) -> None:
        for path in others:
            write(path, "{}")
        for path, data in FILES.items():
            write(f"models/{path}", data)

    for checkout in checkouts(tmp_path, fill):
        assert checkout.folder("models") == tuple(f"models/{path}" for path in sorted(FILES))
        assert checkout.model_file("models.json").size_bytes == 2


def test_documents_behind_links_and_submodules_are_reported(tmp_path: Path) -> None:
    """The same, whether the fleet is a commit, a work tree or a plain folder."""
    repo = Repo.create(tmp_path / "git")
    outside = write_fleet(tmp_path / "outside", {"a.yaml": model("a"), "b/m.gguf": "x"})
    files = {**small_fleet(), "inside/b.yaml": model("b"), ".fleetignore": "left\n"}
    write_fleet(repo.work, files)
    links = {
        "away.yaml": outside / "a.yaml",
        "folder": outside,
        "left": outside,  # listed in .fleetignore
        "again.yaml": Path("model.yaml"),  # read there
        "loop": Path("inside"),
        "inside/up": Path("../inside"),
        "weights.d": outside / "b",
    }
    for name, target in links.items():
        (repo.work / name).symlink_to(target)
    shutil.copytree(repo.work, tmp_path / "plain", symlinks=True)
    shutil.rmtree(tmp_path / "plain/.git")
    inner = Repo(write_fleet(repo.work / "sub", {"other.yaml": model("sub")}), repo.remote)
    inner.git("init", "-q")
    inner.commit(push=False)
    repo.git("add", "--all", ".")
    repo.commit()
    opened = partial(open_source, cache_dir=tmp_path / "cache", working_tree=True)
    in_git = ["away.yaml", "folder", "sub"]
    sources = {
        "commit": (opened(str(repo.remote)), in_git),
        "work tree": (opened(str(repo.work)), in_git),
        "folder": (opened(str(tmp_path / "plain")), in_git[:2]),
    }

    for name, (source, paths) in sources.items():
        loaded = reader()(source.fetch(), frozenset())
        reported = [p for p in loaded.problems if p.rule == "NotFollowed"]
        assert [p.path for p in reported] == paths, name
        assert all(".fleetignore" in p.message for p in reported), name
        assert loaded.fleet is not None, name
        held = reader()(source.fetch(), frozenset({"away.yaml"}))
        assert [(p.path, p.rule) for p in held.errors] == [("away.yaml", "HeaderLost")], name


@pytest.mark.parametrize(
    ("there", "asked", "shown", "difference"),
    [
        ("models/Chat.gguf", "models/chat.gguf", '"Chat.gguf"', "letter case"),
        ("models/e\u0301.gguf", "models/\xe9.gguf", r'"e\u0301.gguf"', "Unicode form"),
        ("e\u0301/a/m.gguf", "\xe9/a/m.gguf", r'"e\u0301"', "Unicode form"),
        ("E\u0301/m.gguf", "\xe9/m.gguf", r'"E\u0301"', "letter case and Unicode form"),
        ("M.gguf", "m.gguf", '"M.gguf"', "letter case"),
    ],
)
def test_a_missing_name_is_compared_with_its_lookalikes(
    tmp_path: Path, there: str, asked: str, shown: str, difference: str
) -> None:
    written = []
    for checkout in checkouts(tmp_path, lambda write: write(there, b"GGUF")):
        for ask in (checkout.model_file, checkout.folder):
            with pytest.raises(SourceError) as refused:
                ask(asked)
            written.append(str(refused.value))
    url = (tmp_path / "plain" / asked).as_uri()
    for source in (url, f"{url}/"):
        with pytest.raises(DownloadFailed) as failed:
            list_files(ListRequest(source))
        written.append(str(failed.value))

    assert len(written) == 8
    for message in written:
        assert f"is {shown}, which differs" in message, message
        assert f"in {difference}; write {shown}, or rename it" in message, message


def test_a_missing_name_without_a_lookalike_names_no_other_file(tmp_path: Path) -> None:
    for checkout in checkouts(tmp_path, lambda write: write("models/chat.gguf", b"GGUF")):
        with pytest.raises(SourceError) as error:
            checkout.model_file("models/cat.gguf")
        assert "differs" not in str(error.value)
