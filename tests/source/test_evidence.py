"""Measured speeds as files of a fleet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.api.benchmark import EXPIRES_S, BenchmarkResult
from reconciler.kube.yaml_text import dump
from reconciler.source.documents import read_documents
from reconciler.source.evidence import evidence_path, read_evidence, superseded
from tests.api.test_benchmark import KEY, NOW, result


def put(root: Path, measured: BenchmarkResult, name: str = "") -> str:
    path = name or evidence_path(measured)
    (root / "bench").mkdir(parents=True, exist_ok=True)
    said = measured.model_dump(mode="json", by_alias=True, exclude_none=True)
    (root / path).write_text(dump(said))
    return path


def test_evidence_is_read_back(tmp_path: Path) -> None:
    path = put(tmp_path, result())

    (found,) = read_evidence(tmp_path, NOW)

    assert path == f"bench/{KEY.short}.yaml"
    assert (found.result, found.refused) == (result(), None)
    assert read_evidence(tmp_path / "nowhere", NOW) == ()


def test_evidence_that_is_not_to_be_used_says_why(tmp_path: Path) -> None:
    path = put(tmp_path, result())
    put(tmp_path, result(), "bench/copy.yaml")

    copy, old = read_evidence(tmp_path, NOW + EXPIRES_S + 86_400)[::-1]

    assert copy.refused == f"bench/copy.yaml holds the result of {path}; rename or remove it"
    assert old.refused == f"{path}: measured 91 days ago, and counts for 90; measure again"


def test_evidence_is_read_through_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    path = put(tmp_path / "elsewhere", result())
    fleet = tmp_path / "fleet"
    (fleet / "bench").mkdir(parents=True)
    (fleet / "bench/link.yaml").symlink_to(tmp_path / "elsewhere" / path)
    (fleet / "bench/none.yaml").symlink_to("/dev/zero")
    os.mkfifo(fleet / "bench/pipe.yaml")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/bench").symlink_to(tmp_path / "elsewhere/bench")

    assert [each.refused for each in read_evidence(fleet, NOW)] == [
        f"bench/{name}.yaml cannot be read: it is no regular file"
        for name in ("link", "none", "pipe")
    ]
    (folder,) = read_evidence(tmp_path / "other", NOW)
    assert (folder.result, folder.refused) == (
        None,
        "bench cannot be read: links are never followed",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has 0 documents"),
        ("a: [", "is no benchmark result ("),
        ("{}\n---\n{}\n", "it has 2 documents"),
        ("key: 1\n", "key: "),
        ("[" * 500, "is no benchmark result ("),
        ("x" * (1 << 20) + "xx", "it is too large"),
    ],
)
def test_a_file_that_is_no_evidence_is_said(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/x.yaml").write_text(text)

    (found,) = read_evidence(tmp_path, NOW)

    assert found.refused is not None
    assert found.refused.startswith("bench/x.yaml is no benchmark result (")
    assert words in found.refused


def test_evidence_of_a_build_that_runs_no_more_is_said(tmp_path: Path) -> None:
    path = put(tmp_path, result())
    found = read_evidence(tmp_path, NOW)
    upgraded = result(key=KEY.model_copy(update={"build": "b2"}))

    assert superseded(found, [upgraded]) == (
        (path, "measured with another runtime build than default/chat has now"),
    )
    assert superseded(found, [result()]) == ()
    assert superseded(found, [result(service="default/other", key=upgraded.key)]) == ()


def test_evidence_is_no_document_of_the_fleet(tmp_path: Path) -> None:
    path = put(tmp_path, result())

    read = read_documents(path, (tmp_path / path).read_bytes())

    assert (read.documents, read.problems) == ((), ())
