"""A folder as a source: which files count, that no link is followed, and that edits are seen."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError
from reconciler.source import folders
from reconciler.source.checkout import YamlFile
from reconciler.source.directory import DirectorySource
from reconciler.source.folders import Folders
from reconciler.source.tree import MAX_FILE_BYTES, is_candidate, repository_path
from tests.support.fleets import model, node, service, small_fleet, write_fleet
from tests.support.wait import wait_for


def paths(root: Path, subdir: str | None = None, held: frozenset[str] = frozenset()) -> list[str]:
    return [file.path for file in DirectorySource(root, subdir).fetch().yaml_files(held)]


def test_only_yaml_and_json_files_that_mention_our_group_count(tmp_path: Path) -> None:
    text = model()
    files = {
        "a.yaml": text,
        "deep/er/b.yml": text,
        "c.json": text,
        "d.yaml.bak": text,
        "d.json.bak": text,
        "config.json": "{}",
        "helm.yaml": "{{ .Values.x }}: not YAML at all",
        ".hidden.yaml": text,
        ".github/e.yaml": text,
        "deep/.git/f.yaml": text,
        "crlf.yml": text.replace("\n", "\r\n"),
    }

    assert paths(write_fleet(tmp_path, files)) == [
        ".hidden.yaml",
        "a.yaml",
        "c.json",
        "crlf.yml",
        "deep/er/b.yml",
    ]


def test_a_first_line_excludes_a_file(tmp_path: Path) -> None:
    files = {
        "a.yaml": f"# fleet: ignore\n{model()}",
        "b.yaml": f"# fleet: ignore  \r\n{model()}",
        "c.yaml": f"\n# fleet: ignore\n{model()}",
        "d.yaml": f"# fleet: ignored?\n{model()}",
    }

    assert paths(write_fleet(tmp_path, files)) == ["c.yaml", "d.yaml"]


def test_fleetignore_has_the_syntax_of_gitignore(tmp_path: Path) -> None:
    files = {name: model() for name in ("a.yaml", "old/b.yaml", "old/keep.yaml", "x/old/c.yaml")}
    ignore = "# comment\n/old/*\n!/old/keep.yaml\n"

    assert paths(write_fleet(tmp_path, {**files, ".fleetignore": ignore})) == [
        "a.yaml",
        "old/keep.yaml",
        "x/old/c.yaml",
    ]


def test_a_subdirectory_narrows_the_tree_and_paths_stay_whole(tmp_path: Path) -> None:
    write_fleet(tmp_path, {"a.yaml": model(), "lab/b.yaml": model(), "labs/c.yaml": model()})

    assert paths(tmp_path, "lab") == ["lab/b.yaml"]
    assert paths(tmp_path, "./lab/") == ["lab/b.yaml"]


@pytest.mark.parametrize("subdir", ["../elsewhere", "/etc", "missing"])
def test_a_subdirectory_is_inside_and_there(tmp_path: Path, subdir: str) -> None:
    with pytest.raises(SourceError):
        DirectorySource(tmp_path, subdir).fetch()


def test_a_folder_that_is_gone_is_an_error_and_not_an_empty_fleet(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        DirectorySource(tmp_path / "gone").fetch()


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(SourceError, match="Not a directory"):
        DirectorySource(tmp_path / "file").fetch()


def test_links_are_never_followed(tmp_path: Path) -> None:
    outside = write_fleet(tmp_path / "outside", {"a.yaml": model(), "m.gguf": "x"})
    root = write_fleet(tmp_path / "root", {"own.yaml": model(), "real.gguf": "x"})
    (root / "file.yaml").symlink_to(outside / "a.yaml")
    (root / "folder").symlink_to(outside)
    (root / "link.gguf").symlink_to("real.gguf")
    checkout = DirectorySource(root).fetch()

    read = [file.path for file in checkout.yaml_files() if isinstance(file, YamlFile)]
    assert read == ["own.yaml"]
    for path in ("link.gguf", "folder/m.gguf"):
        with pytest.raises(SourceError, match="symbolic link"):
            checkout.model_file(path)
        with pytest.raises(SourceError, match="symbolic link"):
            checkout.open(path)
    with pytest.raises(SourceError, match="no such folder"):
        DirectorySource(root, "folder").fetch()


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(tmp_path)
    write_fleet(tmp_path, {"a.yaml": model()})

    assert paths(tmp_path) == ["a.yaml"]


def test_pipes_and_folders_with_yaml_names_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    write_fleet(tmp_path, {"folder.yaml/a.yaml": model()})

    assert paths(tmp_path) == ["folder.yaml/a.yaml"]
    with pytest.raises(SourceError, match="not a regular file"):
        DirectorySource(tmp_path).fetch().model_file("pipe.yaml")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("../x.gguf", "leads out"),
        ("a/../../x.gguf", "leads out"),
        ("/etc/passwd", "absolute"),
        ("~/x.gguf", "absolute"),
        ("C:\\x.gguf", "absolute"),
        ("a\\b.gguf", "not \\\\"),
        ("", "not empty"),
        ("a\n", "control characters"),
        (".git/config", "no file of the repository"),
        (".", "no file of the repository"),
    ],
)
def test_a_path_stays_inside_the_repository(path: str, part: str) -> None:
    with pytest.raises(SourceError, match=part):
        repository_path(path)


def test_a_model_file_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    write_fleet(tmp_path, {"models/m.gguf": b"abc"})
    checkout = DirectorySource(tmp_path).fetch()

    found = checkout.model_file("./models/m.gguf")

    assert (found.path, found.size_bytes) == ("models/m.gguf", 3)
    assert found.sha256 == hashlib.sha256(b"abc").hexdigest()
    with checkout.open("models/m.gguf") as file:
        assert file.read() == b"abc"


@pytest.mark.parametrize(
    ("path", "part"),
    [("none.gguf", "not in the fleet's folder"), ("models", "is a folder"), ("lfs.gguf", "LFS")],
)
def test_a_model_file_that_cannot_be_had_says_why(tmp_path: Path, path: str, part: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    write_fleet(tmp_path, {"models/m.gguf": "x", "lfs.gguf": pointer})

    with pytest.raises(SourceError, match=part):
        DirectorySource(tmp_path).fetch().model_file(path)


def test_two_saves_of_the_same_size_at_once_are_both_seen(tmp_path: Path) -> None:
    source = DirectorySource(tmp_path)
    for value in (4096, 8192, 4097, 8193):
        write_fleet(tmp_path, {"a.yaml": service(contextSize=value), "m.gguf": str(value)})
        checkout = source.fetch()

        (file,) = checkout.yaml_files()
        assert str(value).encode() in file.data
        assert (
            checkout.model_file("m.gguf").sha256 == hashlib.sha256(str(value).encode()).hexdigest()
        )


def test_a_model_file_that_was_read_long_ago_is_read_again_once_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_SETTLED_NS", -(10**18))  # nothing is too new to tell
    source = DirectorySource(tmp_path)
    for data in (b"one", b"another"):
        write_fleet(tmp_path, {"m.gguf": data})

        assert source.fetch().model_file("m.gguf").sha256 == hashlib.sha256(data).hexdigest()


def test_the_revision_is_the_bytes_of_the_fleet(tmp_path: Path) -> None:
    source = DirectorySource(tmp_path)
    write_fleet(tmp_path, small_fleet())
    first = source.fetch().revision
    write_fleet(tmp_path, {"README.md": "x", "other.yaml": "a: 1\n"})
    same = source.fetch().revision
    write_fleet(tmp_path, {"node.yaml": node("other")})

    assert first.startswith("dir:")
    assert len(first) == len("dir:") + 8
    assert same == first
    assert source.fetch().revision != first


def test_a_checkout_is_a_snapshot(tmp_path: Path) -> None:
    write_fleet(tmp_path, {"a.yaml": model("a")})
    checkout = DirectorySource(tmp_path).fetch()
    write_fleet(tmp_path, {"a.yaml": model("b"), "c.yaml": model("c")})

    (file,) = checkout.yaml_files()

    assert file.data == model("a").encode()


@pytest.mark.e2e
def test_unchanged_files_are_not_read_again_once_their_clock_has_moved(tmp_path: Path) -> None:
    write_fleet(tmp_path, small_fleet())
    source = DirectorySource(tmp_path)
    seen: dict[str, bytes] = {}

    def is_not_read_again() -> bool:
        before = dict(seen)
        seen.update({file.path: file.data for file in source.fetch().yaml_files()})
        return all(seen[path] is before.get(path) for path in seen)

    wait_for(is_not_read_again)
    write_fleet(tmp_path, {"node.yaml": node("new")})
    again = {file.path: file.data for file in source.fetch().yaml_files()}
    assert again["model.yaml"] is seen["model.yaml"]
    assert b"new" in again["node.yaml"]


def test_a_huge_file_is_cut_so_that_the_reader_can_refuse_it(tmp_path: Path) -> None:
    write_fleet(tmp_path, {"a.yaml": model() + "#" * (2 * MAX_FILE_BYTES)})

    (file,) = DirectorySource(tmp_path).fetch().yaml_files()

    assert len(file.data) == MAX_FILE_BYTES + 1


def test_a_name_that_is_no_unicode_is_no_trouble(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.yaml", "w") as file:
        file.write(model())

    assert paths(tmp_path) == ["\udcff.yaml"]


def test_edits_during_a_fetch_never_raise(tmp_path: Path) -> None:
    stop = threading.Event()

    def churn() -> None:
        count = 0
        while not stop.is_set():
            folder = tmp_path / f"d{count % 5}"
            folder.mkdir(exist_ok=True)
            (folder / "a.yaml").write_text(model())
            (folder / "a.yaml").unlink()
            folder.rmdir()
            count += 1

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        for _ in range(150):
            list(DirectorySource(tmp_path).fetch().yaml_files())
    finally:
        stop.set()
        worker.join()


def test_held_files_are_yielded_whatever_they_hold(tmp_path: Path) -> None:
    files = {"a.yaml": "was: ours\n", "b.yaml": "other: 1\n", "c.yaml": "# fleet: ignore\n"}
    write_fleet(tmp_path, files)

    assert paths(tmp_path, held=frozenset({"a.yaml", "c.yaml", "gone.yaml"})) == ["a.yaml"]


@pytest.mark.parametrize(
    ("path", "subdir", "counts"),
    [
        ("a.yaml", "", True),
        ("a.yml", "", True),
        ("a.YAML", "", True),
        ("a.json", "", True),
        ("a.jsonl", "", False),
        ("x/.y/a.yaml", "", False),
        (".x/a.yaml", "", False),
        ("x.d/a.yaml", "", True),
        ("x/a.yaml", "x", True),
        ("xx/a.yaml", "x", False),
    ],
)
def test_a_candidate_is_known_by_its_path(path: str, subdir: str, counts: bool) -> None:
    assert is_candidate(path, subdir) is counts


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process its mappings")
def test_files_that_are_read_keep_no_memory_mapping_each(tmp_path: Path) -> None:
    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    write_fleet(tmp_path, {f"{number}.yaml": model(f"m{number}") for number in range(300)})
    before = mappings()

    checkout = DirectorySource(tmp_path).fetch()

    assert mappings() - before < 100
    assert len(list(checkout.yaml_files())) == 300


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"x" * 10)
    with Folders(tmp_path) as folders:
        assert folders.read("a.yaml", 100) == b"x" * 10
        assert folders.read("a.yaml", 5) == b"x" * 5
