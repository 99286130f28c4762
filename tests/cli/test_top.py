"""`reconcile top`: how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli import main
from tests.support.fleets import node, write_fleet
from tests.support.ports import own_port


@pytest.mark.parametrize(("words", "code"), [((), 3), (("--allow-unreachable",), 0)])
def test_a_node_that_gives_no_answer_is_shown_and_makes_its_end(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    away = node("mac", agent={"url": f"http://127.0.0.1:{own_port()}"})
    fleet = write_fleet(tmp_path / "fleet", {"mac.yaml": away})

    ended = main(["top", "-C", str(fleet), *words])

    assert (ended, "mac" in capsys.readouterr().out) == (code, True)
