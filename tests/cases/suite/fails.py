"""For tests/project/test_suite_run.py: not collected by itself."""

from pathlib import Path


def test_passes() -> None:
    assert True


def test_fails(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("what happened")
    raise AssertionError("as it should")
