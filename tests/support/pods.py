"""The programs of our image that run in pods, as plain processes."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.fleet.model_file import ModelFile
from reconciler.kube.objects import Manifest
from reconciler.models.ready import READY, ready_file, ready_key
from tests.support import forked
from tests.support.llama_server import llama_server
from tests.support.wait import PATIENCE_S, wait_for

OURS = ["fleet-agent", "pod"]


def argv(*words: str) -> list[str]:
    return [str(forked.FOLDER / "fleet-agent"), "pod", *words]


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    err: str


def run(*words: str, timeout_s: float = PATIENCE_S, env: Mapping[str, str] | None = None) -> Ended:
    """To its end."""
    done = forked.run(argv(*words), env=_env(env), cwd=Path.cwd(), timeout_s=timeout_s)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout == ""
    return Ended(done.returncode, done.stderr)


@dataclass(slots=True)
class Program:
    """One that runs; what it says is in a file."""

    process: subprocess.Popen[bytes] | forked.Forked
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def ended(self, timeout_s: float = PATIENCE_S) -> int:
        return self.process.wait(timeout_s)


@contextmanager
def running(
    log: Path, *words: str, env: Mapping[str, str] | None = None, is_forked: bool = True
) -> Iterator[Program]:
    """Killed at the end of the block, where it still runs. What a test says of its memory is true
    of a process that was not forked."""
    process: subprocess.Popen[bytes] | forked.Forked
    with log.open("ab") as err:
        if is_forked and forked.can_run(argv(*words), env or ()):
            process = forked.start(argv(*words), env=_env(env), cwd=Path.cwd(), out=err, err=err)
        else:
            process = subprocess.Popen(
                argv(*words), stdin=subprocess.DEVNULL, stdout=err, stderr=err, env=_env(env)
            )
    try:
        yield Program(process, log)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()


def containers(manifests: tuple[Manifest, ...]) -> Iterator[Mapping[str, Any]]:
    """Every container of every pod."""
    for manifest in manifests:
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        yield from pod.get("initContainers", ())
        yield from pod.get("containers", ())


def ours(manifests: tuple[Manifest, ...]) -> tuple[tuple[str, list[str]], ...]:
    """Our programs in them, with their arguments as Kubernetes would hand them over."""
    return tuple(
        (c["command"][2], [word.replace("$$", "$") for word in c["args"]])
        for c in containers(manifests)
        if c.get("command", [])[:2] == OURS
    )


@dataclass
class Pod:
    """A pod's volumes as folders of this machine; `own` is the companion's port."""

    folder: Path
    own: int

    def __post_init__(self) -> None:
        self.store, self.work = self.folder / "volume", self.folder / "work"
        self.store.mkdir()
        self.work.mkdir()

    def here(self, words: Sequence[str]) -> list[str]:
        """Words that name the mounts, with these folders in their place."""
        mounts = (("/models/", f"{self.store}/"), ("/workload", str(self.work)))
        return [self._moved(word, mounts) for word in words]

    def _moved(self, word: str, mounts: tuple[tuple[str, str], ...]) -> str:
        whole = {"/models": str(self.store), "9091": str(self.own)}
        for mount, place in mounts:
            word = word.replace(mount, place)
        return whole.get(word, word)

    @contextmanager
    def engine(self, manifests: tuple[Manifest, ...]) -> Iterator[subprocess.Popen[bytes]]:
        """The engine's container, as a real llama-server."""
        (found,) = (c for c in containers(manifests) if c["name"] == "engine")
        env = {v["name"]: self.here([v["value"]])[0] for v in found["env"]}
        with subprocess.Popen(
            [str(llama_server()), *self.here(found["args"])],
            cwd=self.work,
            env={"PATH": os.environ["PATH"], **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def fetch_words(store: Path, model: ModelFile, *more: str) -> tuple[str, ...]:
    """How a Job calls for a model."""
    pinned = ("--sha256", model.sha256) if model.sha256 else ()
    files = (word for pattern in model.files for word in ("--file", pattern))
    return (
        "fetch",
        *("--store", str(store)),
        *("--model", model.name),
        *("--source", model.source),
        *("--format", model.format),
        *pinned,
        *files,
        *("--keep-free", "0"),
        *more,
    )


def ready_at(store: Path, model: ModelFile) -> Path:
    """Where it is to appear."""
    return store / READY / ready_key(model) / ready_file(model)


def get(
    port: int, path: str, *, post: bool = False, timeout_s: float = PATIENCE_S
) -> tuple[int, str]:
    """Status and text of an answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", method="POST" if post else "GET"
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()


def wait_readyz(port: int, status: int, timeout_s: float = PATIENCE_S) -> str:
    """Until the companion answers so; what it says then."""
    told: list[str] = []

    def answers() -> bool:
        try:
            found, text = get(port, "/readyz")
        except OSError:
            return False
        told[:] = [text]
        return found == status

    wait_for(answers, f"/readyz is {status}", timeout_s=timeout_s)
    return told[0]


def completion(port: int, model: str, tokens: int = 4) -> str:
    """A short answer of an engine."""
    import json

    body = {"model": model, "prompt": "w1", "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def links(words: Sequence[Path]) -> dict[str, str]:
    """Name -> where each link says that it leads."""
    return {path.name: os.readlink(path) for path in words}


def _env(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(more or {})}
