"""Checkouts that stand before another: files that are not written yet, a fetch made ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.api.errors import SourceError
from reconciler.source.added import AddedFiles
from reconciler.source.checkout import FetchedAhead
from reconciler.source.command import read_git
from reconciler.source.directory import DirectorySource
from tests.support.fleets import model, write_fleet


def test_added_files_are_read_between_those_that_are_there(tmp_path: Path) -> None:
    files = {f"{name}.yaml": model(name) for name in "abc"}
    added = files.pop("b.yaml")
    base = DirectorySource(write_fleet(tmp_path, files | {"weights/m.gguf": "m.gguf"})).fetch()

    both = AddedFiles(base, {"b.yaml": added})

    assert [(f.path, f.data.decode()) for f in both.yaml_files()] == [
        (f"{name}.yaml", model(name)) for name in "abc"
    ]
    assert both.model_file("weights/m.gguf") == base.model_file("weights/m.gguf")
    assert both.folder("weights") == base.folder("weights") == ("weights/m.gguf",)
    with both.open("weights/m.gguf") as file:
        assert file.read() == b"m.gguf"
    assert both.commit_of("b.yaml") is None


def test_a_first_fetch_is_given_twice_and_each_later_one_is_new(tmp_path: Path) -> None:
    source = FetchedAhead(DirectorySource(tmp_path))

    first, again, third, fourth = (source.fetch() for _ in range(4))

    assert first is again
    assert len({id(each) for each in (first, third, fourth)}) == 3


def test_what_keeps_git_from_being_started_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="nowhere: no such folder"):
        read_git(tmp_path / "nowhere", "status")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SourceError, match="git is not installed; install it"):
        read_git(tmp_path, "status")
