"""What a fleet's author writes is shown by `reconcile render`, and never obeyed by a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli import main
from tests.support.fleets import model, service
from tests.support.manifests import pool

EVIL = "x\x1b]0;title\x07\n::error::said by the fleet"


@pytest.mark.parametrize("words", [("render", "--images"), ("render",)], ids=["images", "commands"])
def test_control_characters_of_a_fleet_reach_no_terminal(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = service(
        "chat", "gemma", image=EVIL, placement={"nodes": ["edge"]},
        env=[{"name": "OMP_PLACES", "value": EVIL}],
    )  # fmt: skip
    (tmp_path / "fleet.yaml").write_text("\n---\n".join((pool(), model(), chat)))

    code = main([*words, "-C", str(tmp_path)])

    said = capsys.readouterr()
    assert code == 0, said.err
    assert "said by the fleet" in said.out
    assert "\x1b" not in said.out
    assert "\n::error" not in said.out
