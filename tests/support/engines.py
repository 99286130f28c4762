"""Render a service as a node would, and run what comes out as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import API_VERSION
from reconciler.fleet.command import Command
from reconciler.fleet.fleet import Origin
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from reconciler.runtimes import DEFAULT_RUNTIME, resolve
from reconciler.runtimes.runtime import NodeFacts
from reconciler.runtimes.settings import lifecycle, settings
from tests.support.wait import PATIENCE_S, wait_for


def service(name: str = "chat", **spec: Any) -> InferenceService:
    """An InferenceService; `spec` is in camelCase, as in YAML."""
    if "models" not in spec:
        spec.setdefault("modelRef", "tiny")
    return InferenceService.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "InferenceService",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def workload(wanted: InferenceService) -> Workload:
    """What placement makes of a service, as far as rendering needs it."""
    runtime = resolve(wanted.spec.runtime or DEFAULT_RUNTIME)
    assert runtime is not None
    return Workload(
        ref=wanted.ref,
        node="here",
        runtime=runtime.name,
        models=tuple(_file(n, wanted.draft_names.get(n)) for n in wanted.model_names),
        settings=settings(wanted, runtime),
        lifecycle=lifecycle(wanted, runtime),
        origin=Origin("services/chat.yaml", 1),
        port=wanted.spec.endpoint.port,
    )


def _file(name: str, draft: str | None = None) -> ModelFile:
    return ModelFile(name, f"models/{name}.gguf", "gguf", draft=_file(draft) if draft else None)


def render(wanted: InferenceService, node: NodeFacts | None = None) -> Command:
    made = workload(wanted)
    runtime = resolve(made.runtime)
    assert runtime is not None
    return runtime.command(made, node or NodeFacts())


@dataclass
class Server(AbstractContextManager["Server"]):
    """A command as a running process in `directory`; killed at the end of the `with` block."""

    command: Command
    port: int
    directory: Path
    seen: set[int] = field(default_factory=set)  # status codes of /health so far
    process: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, text in self.command.files.items():
            (self.directory / name).write_text(text)
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.command.argv,
                env={"PATH": os.environ["PATH"], **self.command.env},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def wait_ready(self) -> Self:
        wait_for(lambda: self.health() == 200 or self._ended(), f"ready: {self.log}")
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log}"
        return self

    def wait_listening(self) -> str:
        """The log of a llama-server to the last line of its start: it handles signals from there.

        It answers before that: its log is written by a thread of its own.
        """
        self.wait_ready()
        wait_for(lambda: "listening on" in self.log, f"the end of its start: {self.log}")
        return self.log

    def health(self) -> int | None:
        """The status of /health now; None: nobody listens."""
        try:
            code: int = self.request("/health")[0]
        except OSError:
            return None
        self.seen.add(code)
        return code

    def get(self, path: str) -> Any:
        status, text, _ = self.request(path)
        assert status == 200, f"GET {path}: {status} {text}"
        return json.loads(text)

    def request(
        self,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str, Mapping[str, str]]:
        """GET, or POST where there is a body. Raises OSError when nobody answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), dict(error.headers)

    def terminate(self) -> int:
        """SIGTERM, and the exit code: negative for a signal."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)

    def exit_code(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def _ended(self) -> bool:
        return self.process.poll() is not None
