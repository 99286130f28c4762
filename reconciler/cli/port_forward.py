"""A port of this machine that leads to the reconciler in a cluster, by `kubectl port-forward`."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from reconciler.api.errors import StateError

_SAID = re.compile(rb"Forwarding from 127\.0\.0\.1:([0-9]+) ")
_TARGET = ("--namespace", "fleet-reconciler", "service/fleet-reconciler", ":80")
_ENDS_IN_S = 5.0


@contextlib.contextmanager
def forwarded(
    context: str | None, kubeconfig: Path | None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address here, and the process that forwards it. `context`: of the kubeconfig; None: its
    current one. Raises StateError."""
    command = ["kubectl", "port-forward", "--address", "127.0.0.1"]
    command += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    command += ["--context", context] if context else []
    command += _TARGET
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        raise StateError(
            f"kubectl: {error.strerror}; with it, this is done by `{' '.join(command)}`"
        ) from None
    try:
        yield f"http://127.0.0.1:{_port(process, command)}/", process
    finally:
        process.terminate()
        try:
            process.wait(_ENDS_IN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _port(process: subprocess.Popen[bytes], command: Sequence[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _SAID.match(line):
            return int(found[1])
    raise StateError(
        f"`{' '.join(command)}` has ended (its words are above); a context of another name than the"
        " cluster's is given by --cluster NAME=CONTEXT"
    )
