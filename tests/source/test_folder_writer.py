"""Files are written where they were to be written, whatever links a repository has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.source.folder_writer import FolderWriter, LinkInTheWay


def create(folder: FolderWriter) -> None:
    folder.create("a/b/x.yaml", b"new")


def replace(folder: FolderWriter) -> None:
    folder.replace("a/b/x.yaml", b"new")


def read(folder: FolderWriter) -> None:
    folder.read("a/b/x.yaml")


def remove(folder: FolderWriter) -> None:
    folder.remove("a/b/x.yaml")


def exists(folder: FolderWriter) -> None:
    folder.exists("a/b/x.yaml")


@pytest.mark.parametrize("what", [create, replace, read, remove, exists])
@pytest.mark.parametrize("link", ["a", "a/b"])
def test_no_folder_is_entered_through_a_link(
    tmp_path: Path, what: Callable[[FolderWriter], None], link: str
) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    (elsewhere / "b").mkdir(parents=True)
    for name in ("x.yaml", "b/x.yaml"):
        (elsewhere / name).write_text("theirs")
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(elsewhere)

    with FolderWriter(root) as folder, pytest.raises(LinkInTheWay, match=f"^.*{link} is a link"):
        what(folder)

    assert {p.read_text() for p in elsewhere.rglob("*.yaml")} == {"theirs"}
    assert len(list(elsewhere.rglob("*"))) == 3


def test_a_link_in_place_of_a_file_is_replaced_or_refused_but_never_written_through(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    (tmp_path / "root").mkdir()
    (tmp_path / "root/x").symlink_to(outside)

    with FolderWriter(tmp_path / "root") as folder:
        assert folder.exists("x")
        with pytest.raises(FileExistsError):
            folder.create("x", b"new")
        with pytest.raises(LinkInTheWay):
            folder.read("x")
        folder.replace("x", b"new")
        assert folder.read("x") == b"new"

    assert not outside.exists()


def test_a_folder_that_nobody_chose_is_reached_through_no_link_from_here_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "here/out").symlink_to("../victim")
    monkeypatch.chdir(tmp_path / "here")

    for name in ("out", "out/deep", "./out/../out", str(tmp_path / "here/out/deep")):
        with pytest.raises(LinkInTheWay):
            FolderWriter(Path(name), named=False)
    for name in ("new/deep", "../beside", str(tmp_path / "absolute")):
        with FolderWriter(Path(name), named=False) as folder:
            folder.create("x", b"new")

    assert list((tmp_path / "victim").iterdir()) == []
    assert (tmp_path / "beside/x").read_bytes() == b"new"


def test_a_file_that_is_removed_takes_the_folders_with_it_that_held_nothing_else(
    tmp_path: Path,
) -> None:
    with FolderWriter(tmp_path) as folder:
        folder.create("a/b/c/x.yaml", b"x")
        folder.create("a/y.yaml", b"y")
        before = folder.exists("a/b/c/x.yaml")

        folder.remove("a/b/c/x.yaml")
        folder.remove("a/none.yaml")

        there = [folder.exists(path) for path in ("a/b/c/x.yaml", "a/b", "a/y.yaml")]
        read = [folder.read(path) for path in ("a/y.yaml", "a/b/c/x.yaml", "a/y.yaml/z")]

    assert (before, there) == (True, [False, False, True])
    assert read == [b"y", None, None]


def test_what_cannot_be_replaced_leaves_no_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "x.yaml" / "full").mkdir(parents=True)

    with FolderWriter(tmp_path) as folder, pytest.raises(OSError, match="directory"):
        folder.replace("x.yaml", b"new")

    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]
