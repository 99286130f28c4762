"""The command line of the extender: what it prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reconciler.cli import main
from reconciler.console.edge import Exit


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(("extender", "--print-config", *words)) == Exit.OK
    document = yaml.safe_load(capsys.readouterr().out)
    (extender,) = document["extenders"]
    assert isinstance(extender, dict)
    return extender


def test_the_configuration_names_the_service_of_the_chart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = "http://fleet-extender.fleet-reconciler.svc:8888"

    assert _printed(capsys)["urlPrefix"] == url
    assert _printed(capsys, "--port", "9999")["urlPrefix"] == url.replace("8888", "9999")
    assert (
        _printed(capsys, "--url", "https://10.0.0.1:8888/")["urlPrefix"] == "https://10.0.0.1:8888"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--weights", "tps=-1,util=1,cost=1"), "tps=-1: give 0 or more"),
        (("--weights", "tps=0,util=0,cost=0"), "all are 0"),
        (("--port", "70000"), "65535"),
        (("--label-prefix", "kubernetes.io/"), "belongs to Kubernetes itself"),
        (("--print-config", "--url", "ftp://x"), "write http://HOST:PORT"),
        (("--url", "http://x"), "--url goes with --print-config"),
        (("--tls-cert-file", "a"), "go together"),
        (("--tls-cert-file", "/none/a", "--tls-key-file", "/none/b"), "No such file"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(("extender", *words)) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_a_cluster_that_nobody_named_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = main(("extender", "--kubeconfig", str(tmp_path / "none"), "--port", "0"))

    assert code != Exit.OK
    assert "no kubeconfig" in capsys.readouterr().err
