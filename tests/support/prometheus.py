"""Prometheus and its promtool for the tests: on PATH, else Debian's package, fetched once and kept.

    python -m tests.support.prometheus      # fetches it where there is none, prints the folder

Nothing is installed: the two programs, 98 MB, are unpacked into the user's cache folder
(`$XDG_CACHE_HOME/fleet-reconciler/prometheus/`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cache import cache_folder
from tests.support.ports import own_port
from tests.support.tools import APT, missing
from tests.support.wait import PATIENCE_S, wait_for

_PROGRAMS = ("prometheus", "promtool")


def prometheus_programs(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder that has both programs, fetched now if it must be. Raises SystemExit with what to
    do."""
    if found := found_prometheus(environment):
        return found
    folder = _kept_folder(environment)
    if lacking := missing([APT]):
        sys.exit("\n".join(["prometheus cannot be fetched; this machine lacks:", *lacking]))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "prometheus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second waits, and finds it there
        if not _has_all(folder):
            _fetch(folder)
    return folder


def found_prometheus(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of programs that are there already."""
    path = environment.get("PATH", "").split(os.pathsep)
    folders = (_kept_folder(environment), *map(Path, filter(None, path)))
    return next((folder for folder in folders if _has_all(folder)), None)


def _has_all(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in _PROGRAMS)


def _kept_folder(environment: Mapping[str, str]) -> Path:
    return cache_folder(environment) / "prometheus"


def _fetch(folder: Path) -> None:
    print(f"fetching Debian's prometheus once, into {folder}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as name:
        work = Path(name)
        if _apt(work, "download", "prometheus").returncode != 0:
            # no list of packages on this machine yet: one of our own, which needs no rights
            for place in ("state/lists/partial", "cache/archives/partial"):
                (work / place).mkdir(parents=True)
            own = (f"-oDir::State::lists={work}/state/lists", f"-oDir::Cache={work}/cache")
            for words in ((*own, "update"), (*own, "download", "prometheus")):
                ended = _apt(work, *words)
                if ended.returncode != 0:
                    sys.exit(f"{ended.stderr}apt-get {' '.join(words)} failed. {APT.how}")
        (package,) = work.glob("prometheus_*.deb")
        subprocess.run(("dpkg-deb", "-x", package, work / "unpacked"), check=True)
        kept = work / "kept"
        kept.mkdir()
        for program in _PROGRAMS:
            shutil.move(work / "unpacked/usr/bin" / program, kept)
        shutil.rmtree(folder, ignore_errors=True)
        kept.rename(folder)


def _apt(work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("apt-get", "-q", *words), cwd=work, capture_output=True, text=True)


def promtool(*words: str, stdin: str = "") -> str:
    """What it prints. AssertionError where it finds fault."""
    program = prometheus_programs() / "promtool"
    ended = subprocess.run((program, *words), input=stdin, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@dataclass(frozen=True, slots=True)
class RunningPrometheus:
    port: int

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that it answers with now. AssertionError where it does not parse."""
        return list(self._ask("query", query=expression)["result"])

    def families_of(self, job: str) -> set[str]:
        """Every name that a scrape of the job said, with a type and a help, with series or none."""
        found = self._ask("targets/metadata", match_target=f'{{job="{job}"}}')
        return {each["metric"] for each in found if each["help"] and each["type"] != "unknown"}

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, what: str, **values: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(values)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{values}: {error.read().decode()}") from None


@contextlib.contextmanager
def running_prometheus(
    folder: Path, targets: Mapping[str, int], rules: Path | None = None, **every_job: Any
) -> Iterator[RunningPrometheus]:
    """One that scrapes ports of this machine every half second, by the names of its jobs.
    `every_job` is more of their configuration."""
    port = own_port()
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}], **every_job}
            for job, port in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # which YAML is, too
    words = (
        prometheus_programs() / "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    found = RunningPrometheus(port)
    try:
        wait_for(lambda: _is_ready(found, process, folder), "prometheus answers")
        yield found
    finally:
        process.kill()
        process.wait()


def _is_ready(it: RunningPrometheus, process: subprocess.Popen[bytes], folder: Path) -> bool:
    assert process.poll() is None, (folder / "prometheus.log").read_text()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{it.port}/-/ready", timeout=PATIENCE_S):
            return True
    except OSError:  # not yet: refused, or a 503
        return False


if __name__ == "__main__":
    print(prometheus_programs())
