"""Models that are already here: file:// and a path inside the repository."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from reconciler.api.errors import DownloadFailed, ModelError, SourceError
from reconciler.models.partial import Partial
from reconciler.models.scheme import FetchContext, FetchRequest
from reconciler.models.sources import fetch

DATA = bytes(range(256)) * 8000


def copy(source: str, path: Path, context: FetchContext | None = None) -> Partial:
    with Partial(path) as partial:
        fetch(FetchRequest(source, partial, context or FetchContext()))
    return partial


def test_a_file_is_copied_so_that_truncating_the_original_harms_nobody(tmp_path: Path) -> None:
    original = tmp_path / "a model.gguf"
    original.write_bytes(DATA)

    copy(original.as_uri(), tmp_path / "m")
    os.truncate(original, 0)

    assert (tmp_path / "m").read_bytes() == DATA


def test_an_interrupted_copy_goes_on(tmp_path: Path) -> None:
    original = tmp_path / "o.gguf"
    original.write_bytes(DATA)

    def refuse_the_rest(received: int, total: int | None) -> None:
        if received > len(DATA) // 2:
            raise DownloadFailed("enough")

    with Partial(tmp_path / "m", refuse_the_rest) as partial, pytest.raises(DownloadFailed):
        fetch(FetchRequest(original.as_uri(), partial))

    partial = copy(original.as_uri(), tmp_path / "m")

    assert partial.resumed
    assert (tmp_path / "m").read_bytes() == DATA


def test_a_changed_original_is_copied_from_the_start(tmp_path: Path) -> None:
    original = tmp_path / "o.gguf"
    original.write_bytes(DATA)
    copy(original.as_uri(), tmp_path / "m")
    original.write_bytes(DATA[::-1])

    partial = copy(original.as_uri(), tmp_path / "m")

    assert not partial.resumed
    assert (tmp_path / "m").read_bytes() == DATA[::-1]


def test_a_file_that_is_absent_or_no_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for name in ("absent", "pipe"):
        with pytest.raises(DownloadFailed, match=f"{tmp_path}/{name}"):
            copy((tmp_path / name).as_uri(), tmp_path / "m")
    with pytest.raises(DownloadFailed, match="Is a directory"):
        copy(tmp_path.as_uri(), tmp_path / "m")


def test_a_link_to_what_is_on_no_disk_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").symlink_to("/proc/self/environ")

    with pytest.raises(ModelError, match="belongs to the system"):
        copy((tmp_path / "m.gguf").as_uri(), tmp_path / "copy")

    assert not (tmp_path / "copy").read_bytes()


def test_a_path_in_the_repository_is_read_through_the_checkout(tmp_path: Path) -> None:
    asked = []

    def open_repository(path: str) -> BinaryIO:
        asked.append(path)
        return io.BytesIO(DATA)

    copy("models/m.gguf", tmp_path / "m", FetchContext(open_repository=open_repository))

    assert asked == ["models/m.gguf"]
    assert (tmp_path / "m").read_bytes() == DATA


def test_a_checkout_that_cannot_give_the_file_says_why(tmp_path: Path) -> None:
    def open_repository(path: str) -> BinaryIO:
        raise SourceError(f"{path}: a symlink is not followed")

    with pytest.raises(DownloadFailed, match="a symlink is not followed"):
        copy("models/m.gguf", tmp_path / "m", FetchContext(open_repository=open_repository))
    with pytest.raises(ModelError, match="no repository is at hand"):
        copy("models/m.gguf", tmp_path / "m")


@pytest.mark.parametrize("note", ["", "[]", "{", '{"sure": 1e99}', '{"sure": -1}', '{"sure": "x"}'])
def test_a_torn_note_means_to_start_over(note: str, tmp_path: Path) -> None:
    original = tmp_path / "o.gguf"
    original.write_bytes(DATA)
    (tmp_path / "m").write_bytes(b"something")
    (tmp_path / "m.json").write_text(note)

    partial = copy(original.as_uri(), tmp_path / "m")

    assert not partial.resumed
    assert (tmp_path / "m").read_bytes() == DATA
