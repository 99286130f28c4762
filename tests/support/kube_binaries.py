"""The programs of a real cluster for the tests: KUBEBUILDER_ASSETS, else built once and kept.

    python -m tests.support.kube_binaries       # builds what is not there yet, prints the folder

Building all of them from their Go modules takes about 10 minutes on two cores. The result, 500 MB,
is kept in the user's cache folder (`$XDG_CACHE_HOME/fleet-reconciler/kubernetes-VERSION/`).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cache import cache_folder
from tests.support.tools import GO, missing

KUBERNETES = "1.36.3"
STAGES = "kwok-stages.yaml"  # what makes kwok's nodes and their pods Ready at once


@dataclass(frozen=True)
class Program:
    """A main package of a Go module."""

    name: str
    package: str
    version: str
    module: str


_KUBERNETES = "k8s.io/kubernetes"
PROGRAMS = (
    *(
        Program(name, f"{_KUBERNETES}/cmd/{name}", f"v{KUBERNETES}", _KUBERNETES)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    ),
    Program("etcd", "go.etcd.io/etcd/server/v3", "v3.7.3", "go.etcd.io/etcd/server/v3"),
    Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", "v0.8.0", "sigs.k8s.io/kwok"),
    Program(
        "kubeconform",
        "github.com/yannh/kubeconform/cmd/kubeconform",
        "v0.8.0",
        "github.com/yannh/kubeconform",
    ),
    Program("helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0", "helm.sh/helm/v3"),
    Program(
        "registry",
        "github.com/distribution/distribution/v3/cmd/registry",
        "v3.0.0",
        "github.com/distribution/distribution/v3",
    ),
)


def kube_binaries(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with every program and STAGES, built now as far as it must be. Programs that
    KUBEBUILDER_ASSETS has are linked from there. Raises SystemExit with what to do."""
    folder = _kept_folder(environment)
    if not lacking(environment):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "kubernetes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second waits, and finds it built
        _link_given(folder, environment)
        if lacking(environment):
            _build(folder)
    return folder


def _kept_folder(environment: Mapping[str, str]) -> Path:
    return cache_folder(environment) / f"kubernetes-{KUBERNETES}"


def lacking(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The names of what is not there yet."""
    folder = _kept_folder(environment)
    names = [*(program.name for program in PROGRAMS), STAGES]
    return [name for name in names if not (folder / name).exists()]


def _link_given(folder: Path, environment: Mapping[str, str]) -> None:
    """envtest's folder has kube-apiserver, etcd and kubectl."""
    given = environment.get("KUBEBUILDER_ASSETS")
    for name in lacking(environment) if given else ():
        assert given is not None
        if (program := Path(given, name).absolute()).exists():
            (folder / name).symlink_to(program)


def _build(folder: Path) -> None:
    if lines := missing([GO]):
        sys.exit(
            "\n".join(["the programs of a cluster cannot be built; this machine lacks:", *lines])
        )
    names = "etcd, kwok, helm, kubeconform and a registry"
    print(f"building Kubernetes {KUBERNETES}, {names} once, into {folder}")
    print("this takes about 10 minutes on two cores", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="build-") as work:
        modules: dict[str, list[Program]] = {}
        for program in PROGRAMS:
            modules.setdefault(program.module, []).append(program)
        for module, programs in modules.items():
            _Module(Path(work), module, programs).build_into(folder)
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)


@dataclass(frozen=True)
class _Module:
    """A Go module of ours that needs one of theirs, so that its replacements can be chosen."""

    work: Path
    module: str
    programs: list[Program]

    def build_into(self, folder: Path) -> None:
        absent = [p for p in self.programs if not (folder / p.name).exists()]
        wants_stages = "kwok" in self.module and not (folder / STAGES).exists()
        if not absent and not wants_stages:
            return
        root = self.work / self.module.replace("/", "_")
        root.mkdir()
        version = self.programs[0].version
        _go(root, "mod", "init", "programs")
        found = _go_json(root, "mod", "download", "-json", f"{self.module}@{version}")
        self._replace_staging(root, Path(found["GoMod"]), version)
        if wants_stages:
            _keep_stages(Path(found["Dir"]), folder)
        _go(root, "get", *(f"{p.package}@{version}" for p in self.programs))
        for program in absent:
            made = root / program.name
            _go(root, "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), program.package)
            made.rename(folder / program.name)

    def _replace_staging(self, root: Path, go_mod: Path, version: str) -> None:
        """Kubernetes builds its own libraries from a folder beside it, which its module lacks: they
        are published as modules of their own, with a 0 for its 1."""
        told = _go_json(root, "mod", "edit", "-json", str(go_mod))
        published = f"v0.{version.partition('.')[2]}"
        for replaced in told["Replace"] or ():
            if replaced["New"]["Path"].startswith("./staging/"):
                name = replaced["Old"]["Path"]
                _go(root, "mod", "edit", f"-replace={name}={name}@{published}")


def _keep_stages(source: Path, folder: Path) -> None:
    """kwok's own rules that make nodes and pods Ready fast, as one file."""
    stages = source / "kustomize" / "stage"
    files = sorted(
        f for part in ("node", "pod") for f in (stages / part / "fast").glob("*.yaml")
        if f.name != "kustomization.yaml"
    )  # fmt: skip
    (folder / STAGES).write_text("\n---\n".join(f.read_text() for f in files))


def _go_json(root: Path, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_go(root, *words))
    return answer


def _go(root: Path, *words: str) -> str:
    """Run go there. What it caches lies beside, and goes with the work folder."""
    own = {
        "GOCACHE": str(root.parent / "cache"),
        "GOMODCACHE": str(root.parent / "modules"),
        "GOFLAGS": "-mod=mod -modcacherw -buildvcs=false",
        "GOBIN": "",
    }
    nice = ("nice",) if shutil.which("nice") else ()
    ended = subprocess.run(
        (*nice, "go", *words),
        cwd=root,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    if ended.returncode != 0:
        sys.exit(f"{ended.stderr[-4000:]}\ngo {' '.join(words)} failed; see above")
    return ended.stdout


def programs(names: Iterable[str]) -> dict[str, Path]:
    """Name -> path of programs that are there."""
    folder = kube_binaries()
    return {name: folder / name for name in names}


if __name__ == "__main__":
    print(kube_binaries())
