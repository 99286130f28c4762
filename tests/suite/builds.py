"""What is built once a machine, beside the tests that do not need it. Only the standard library."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support import kube_binaries, llama_server, prometheus
from tests.support.tools import APT, COMPILER, GO, MAKE, Tool

_STOP_S = 30.0  # for compilers to end and half-built folders to go


@dataclass(frozen=True)
class Build:
    """`name` is also the marker of the tests that wait for it; `minutes` are of two cores that do
    nothing else. `module` builds it, when it is run, and says where it is when it is there."""

    name: str
    what: str
    minutes: int
    module: str
    is_there: Callable[[], bool]
    tools: tuple[Tool, ...]


BUILDS = (
    Build(
        "llama_server",
        f"llama-server {llama_server.VERSION}",
        5,
        "tests.support.llama_server",
        lambda: llama_server.found_llama_server() is not None,
        (COMPILER, MAKE),
    ),
    Build(
        "cluster",
        f"Kubernetes {kube_binaries.KUBERNETES}, etcd, kwok, helm, kubeconform, registry",
        10,
        "tests.support.kube_binaries",
        lambda: not kube_binaries.lacking(),
        (GO,),
    ),
    Build(
        "prometheus",
        "Prometheus (fetched)",
        1,
        "tests.support.prometheus",
        lambda: prometheus.found_prometheus() is not None,
        (APT,),
    ),
)


def pending() -> tuple[Build, ...]:
    """What is not there yet."""
    return tuple(build for build in BUILDS if not build.is_there())


@dataclass
class Running:
    """A build under way, in a session of its own; what it prints is in `log`."""

    build: Build
    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, build: Build, folder: Path) -> Running:
        log = folder / f"build-{build.name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                (sys.executable, "-m", build.module),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return cls(build, log, process)

    @property
    def failure(self) -> str | None:
        """Why it ended without a result; None: it is under way, or done."""
        if self.process.poll() in (None, 0):
            return None
        return f"{self.build.what} cannot be built:\n{self.log.read_text(errors='replace')[-4000:]}"

    def stop(self) -> None:
        """End it with its compilers; it takes away what it had begun."""
        if self.process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def stop_all(running: Iterable[Running]) -> None:
    for build in running:
        build.stop()
