"""A real OCI registry, CNCF's Distribution, on loopback: it takes LOGIN and nobody else.

with distribution(tmp_path) as host:
    ... f"oci://{host}/team/model:1" ...
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kube_binaries import kube_binaries
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S, wait_for

LOGIN = "me:password"
# As `htpasswd -B` writes it.
_HTPASSWD = "me:$2y$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu\n"


@contextmanager
def distribution(folder: Path) -> Iterator[str]:
    """Its host and port; what is pushed lies in the folder."""
    port = own_port()
    (folder / "htpasswd").write_text(_HTPASSWD)
    config = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "blobs")}},
        "http": {"addr": f"127.0.0.1:{port}"},
        "auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}},
    }
    (folder / "config.yml").write_text(json.dumps(config))  # which YAML is, too
    words = (kube_binaries() / "registry", "serve", folder / "config.yml")
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        )
    try:
        wait_for(lambda: _answers(port, process, folder), "the registry answers")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def log_in(host: str, home: Path) -> None:
    """What `docker login` leaves there."""
    (home / ".docker").mkdir(parents=True, exist_ok=True)
    auths = {"auths": {host: {"auth": b64encode(LOGIN.encode()).decode()}}}
    (home / ".docker" / "config.json").write_text(json.dumps(auths))


def _answers(port: int, process: subprocess.Popen[bytes], folder: Path) -> bool:
    assert process.poll() is None, (folder / "registry.log").read_text()
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=PATIENCE_S).close()
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 401
    except OSError:
        return False
    return True
