"""What a pod's programs say, in their output and where Kubernetes keeps why they ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli import main


def test_what_a_fetch_says_has_no_signature_of_its_url(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    source = "https://127.0.0.1:1/m.gguf?X-Signature=c4n4ry"
    words = ("--attempts", "1", "--termination-log", str(log), "--store", str(tmp_path / "store"))

    code = main(["pod", "fetch", "--model", "m", f"--source={source}", *words])

    said = capfd.readouterr()
    assert code == 1
    assert log.read_text()
    assert "c4n4ry" not in said.out + said.err + log.read_text()
