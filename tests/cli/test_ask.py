"""Which of a service's instances can be asked from here."""

from __future__ import annotations

import pytest

from reconciler.api.meta import service_ref
from reconciler.cli import main
from reconciler.cli.ask import Reach
from reconciler.core.observation import Instance
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant


@pytest.mark.parametrize(
    ("target", "endpoint", "has"),
    [
        ("node/mac", "http://127.0.0.1:8080", True),
        ("node/mac", None, False),
        ("node/gpu", "http://127.0.0.1:8080", False),  # of that machine, and here another's
        ("node/gpu", "http://[::1]:8080", False),
        ("node/gpu", "http://localhost:8080", False),
        ("node/gpu", "http://10.0.0.7:8080", True),
        ("cluster/prod", "http://chat.default.svc:8080", True),
        ("cluster/eu", "http://chat.default.svc:8080", False),
    ],
)
def test_what_has_an_address_from_node_mac(target: str, endpoint: str | None, has: bool) -> None:
    instance = Instance(
        *(service_ref("chat"), target, "llama-server", {}, "0", None, None),
        ready=True,
        reason="Ready",
        endpoint=endpoint,
    )

    prod = ApiServer.of("prod", ClusterCredentials(lambda: Grant("http://127.0.0.1:1")))
    assert Reach("mac", {"prod": prod}).has(instance) is has


def test_without_words_only_the_name_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["ask"])

    assert "required: NAME;" in capsys.readouterr().err
