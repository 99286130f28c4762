"""A real cluster on loopback: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok.

There is no kubelet: kwok says that nodes and pods are Ready, and no container ever runs. Tests look
with kubectl, or by plain requests that say the same, never by our own client.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.client.transport import Transport
from tests.support.certificates import self_signed
from tests.support.cluster_requests import Requests
from tests.support.cluster_wipe import SYSTEM, Wiper
from tests.support.kube_binaries import STAGES, kube_binaries
from tests.support.ports import own_ports
from tests.support.wait import PATIENCE_S, wait_for

CONTROL = ("kube-controller-manager", "kube-scheduler", "kwok")
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Cluster:
    """One cluster in a folder of its own. Its parts can be stopped and started again."""

    folder: Path
    programs: Path
    token: str
    etcd_port: int
    etcd_peer_port: int
    api_port: int
    parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _namespaces: set[str] = field(default_factory=set)
    _requests: Requests | None = None
    _wiper: Wiper = field(init=False)

    def __post_init__(self) -> None:
        self._wiper = Wiper(self.etcd_port, self.api_port, self.ca, self.token)

    @classmethod
    def start(cls, folder: Path, parts: Iterable[str] = CONTROL) -> Self:
        """The API server and `parts`, Ready: about 5 s with all."""
        folder.mkdir(parents=True, exist_ok=True)
        ports = own_ports(3)
        made = cls(folder, kube_binaries(), secrets.token_hex(16), *ports)
        self_signed(folder / "tls")
        _write_key(folder / "service-account.key")
        (folder / "tokens.csv").write_text(f'{made.token},admin,admin,"system:masters"\n')
        made.kubeconfig.write_text(_kubeconfig(made.url, made.ca, made.token))
        made.kubeconfig.chmod(0o600)
        made.start_etcd()
        made.start_api()
        for part in parts:
            made.start_part(part)
        return made

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def ca(self) -> Path:
        return self.folder / "tls" / "cert.pem"

    @property
    def kubeconfig(self) -> Path:
        """One context, `test`, with all rights."""
        return self.folder / "kubeconfig"

    @property
    def requests(self) -> Requests:
        if self._requests is None:
            self._requests = Requests(self.api_port, self.ca, self.token)
        return self._requests

    def client(self, name: str = "prod") -> ApiServer:
        """Our own client of this cluster, with all rights. Programs find their way by the
        kubeconfig, which takes a process to read: half a second of processor time."""
        grant = Grant(self.url, "admin", f"Bearer {self.token}", self.ca.read_text())
        return ApiServer(name, Transport(name, ClusterCredentials(lambda: grant)))

    def kubectl(self, *words: str, text: str | None = None, check: bool = True) -> str:
        """What kubectl prints. AssertionError with what it said: it failed, unless `check` is off
        (then stdout and stderr together)."""
        own = ("--kubeconfig", self.kubeconfig, "--cache-dir", self.folder / "kubectl")
        ended = subprocess.run(
            (self.programs / "kubectl", *own, *words),
            input=text,
            capture_output=True,
            text=True,
            env={**os.environ, "GOGC": "off"},  # it lives for a moment
            timeout=2 * PATIENCE_S,
        )
        if not check:
            return ended.stdout + ended.stderr
        assert ended.returncode == 0, f"kubectl {' '.join(words)}: {ended.stderr}"
        return ended.stdout

    def wait(self, *words: str) -> None:
        """`kubectl wait ...`: AssertionError when it does not come true."""
        self.kubectl("wait", *words, f"--timeout={PATIENCE_S:g}s")

    def json(self, *words: str) -> Any:
        """What `kubectl ... -o json` prints, parsed."""
        found = self.requests.get(words)
        return json.loads(self.kubectl(*words, "-o", "json")) if found is None else found

    def apply(self, *documents: Mapping[str, Any] | str) -> None:
        """As somebody with kubectl would: client-side apply of YAML text or of objects."""
        texts = [d if isinstance(d, str) else json.dumps(d) for d in documents]
        self.kubectl("apply", "-f", "-", text="\n---\n".join(texts))

    def namespace(self, name: str) -> str:
        """Make a namespace, by a name that is the test's own; it is emptied with the test."""
        self._namespaces.add(name)
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.requests.apply(f"/api/v1/namespaces/{name}", made)
        return name

    def add_node(
        self, name: str, labels: Mapping[str, str] | None = None, **resources: str
    ) -> None:
        """A node that kwok keeps Ready; `resources` such as **{"nvidia.com/gpu": "1"}."""
        amounts = {"cpu": "32", "memory": "64Gi", "pods": "110", **resources}
        made = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**(labels or {})}},
        }
        amounts_of = {**made, "status": {"allocatable": amounts, "capacity": amounts}}
        self.requests.apply(f"/api/v1/nodes/{name}", made)
        self.requests.apply(f"/api/v1/nodes/{name}/status", amounts_of)

    def calls(self) -> dict[tuple[str, str], int]:
        """(verb, resource) -> how many requests the API server has answered, watches apart."""
        counted: dict[tuple[str, str], int] = {}
        for line in self.kubectl("get", "--raw", "/metrics").splitlines():
            if line.startswith("apiserver_request_total{"):
                labels, _, value = line[len("apiserver_request_total{") :].rpartition("} ")
                said = dict(part.split("=", 1) for part in labels.split(",") if "=" in part)
                key = said["verb"].strip('"'), said["resource"].strip('"')
                counted[key] = counted.get(key, 0) + int(float(value))
        return counted

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{p}" for p in (self.etcd_port, self.etcd_peer_port))
        self._spawn(
            "etcd",
            *("--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--name", "test"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"test={peer}", "--log-level", "error"),
        )
        wait_for(lambda: _answers(f"{client}/readyz"), "etcd ready")

    def start_api(self) -> None:
        key = str(self.folder / "service-account.key")
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            *("--bind-address=127.0.0.1", f"--secure-port={self.api_port}"),
            f"--tls-cert-file={self.ca}",
            f"--tls-private-key-file={self.folder / 'tls' / 'key.pem'}",
            f"--cert-dir={self.folder / 'api'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--shutdown-delay-duration=0s",
            "--v=1",
        )
        wait_for(self._is_ready, "kube-apiserver ready")

    def start_part(self, name: str) -> None:
        """kube-controller-manager, kube-scheduler or kwok."""
        config = f"--kubeconfig={self.kubeconfig}"
        arguments = {
            "kube-controller-manager": (
                config,
                *("--leader-elect=false", "--secure-port=0"),
                "--horizontal-pod-autoscaler-sync-period=1s",
                # its default of 20 a second is what a roll-out would wait for
                *("--kube-api-qps=200", "--kube-api-burst=400"),
                # kwok sends no heartbeat
                *("--node-monitor-grace-period=24h", "--node-startup-grace-period=24h"),
                f"--service-account-private-key-file={self.folder / 'service-account.key'}",
                f"--root-ca-file={self.ca}",
            ),
            "kube-scheduler": (config, "--leader-elect=false", "--secure-port=0"),
            "kwok": (config, "--manage-all-nodes=true", f"--config={self.programs / STAGES}"),
        }
        self._spawn(name, *arguments[name])

    @contextlib.contextmanager
    def scheduler(self, configuration: Path) -> Iterator[None]:
        """One more kube-scheduler, by a configuration of its own."""
        name = "second-scheduler"
        words = (f"--config={configuration}", "--secure-port=0")
        self._spawn(name, *words, program="kube-scheduler")
        try:
            yield
        finally:
            self.stop_part(name, kill=True)

    def stop_part(self, name: str, *, kill: bool = False) -> None:
        """Any part, by the name of its program. Its data stay."""
        part = self.parts.pop(name)
        part.kill() if kill else part.terminate()
        part.wait(PATIENCE_S)

    def stop(self) -> None:
        for name in reversed(tuple(self.parts)):
            self.stop_part(name, kill=True)

    def wipe(self, *, wholly: bool = False) -> None:
        """Nothing is left of what a test made, but namespaces, emptied; and what is kept between
        tests, unless one of them changed it or it is to go `wholly`."""
        self._wiper.wipe(self._namespaces, wholly=wholly)

    def keep(self) -> None:
        """What is there now stays for the tests that follow."""
        self._wiper.keep()

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return bool(self._wiper.kept)

    def remove_system(self) -> None:
        """For tests of what an installation makes: another test may have left SYSTEM, emptied."""
        self.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found", "--wait")

    def _is_ready(self) -> bool:
        assert self.parts["kube-apiserver"].poll() is None, self.log("kube-apiserver")
        return _answers(f"{self.url}/readyz", self.ca)  # whoever asks may read it

    def log(self, part: str) -> str:
        """The end of what a part has written."""
        return (self.folder / f"{part}.log").read_text(errors="replace")[-4000:]

    def _spawn(self, name: str, *arguments: str, program: str | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.parts[name] = subprocess.Popen(
                (self.programs / (program or name), *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Go collects garbage less often: a third less of the API server's CPU
                env={**os.environ, "GOGC": "400"},
                preexec_fn=_end_with_parent,  # a run that is killed leaves no cluster behind
            )


def _end_with_parent() -> None:
    """Linux only; elsewhere a killed run leaves its parts."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def running_cluster(parts: Iterable[str] = CONTROL) -> Iterator[Cluster]:
    """A cluster in a temporary folder, gone at the end. Without `parts` it is an API server whose
    objects nobody acts on."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    cluster = Cluster.start(folder, parts)
    try:
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _kubeconfig(url: str, ca: Path, token: str) -> str:
    """JSON is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": url, "certificate-authority": str(ca)}}
            ],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
    )


def _write_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _answers(url: str, ca: Path | None = None) -> bool:
    try:
        trust = ssl.create_default_context(cafile=ca) if ca else None
        with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # scripts end it so
    with running_cluster() as cluster:
        took = f"{time.monotonic() - began:.1f} s"
        print(f"export KUBECONFIG={cluster.kubeconfig}   # {took}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            cluster.parts["kube-apiserver"].wait()
