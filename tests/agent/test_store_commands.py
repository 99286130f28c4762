"""`fleet-agent fetch` and `fleet-agent store`: the store by hand, with an agent or without one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main, parser_of
from agent.models.revisions import KeptModels
from agent.models.store import ModelStore
from agent.process.launch import Child, Identity
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from reconciler.api.quantity import show_bytes
from reconciler.fleet.model_file import ModelFile
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer, OneLineServer
from tests.support.owner import launch
from tests.support.registry import Registry
from tests.support.wait import wait_for

OBEYED = "\x1b]0;title\x07\x1b[31m"  # a window's title, and red from here on
FLEET = """\
apiVersion: inference.llmkube.dev/v1alpha1
kind: FleetNode
metadata: {name: box}
spec: {agent: {}, hardware: {memory: 64Gi}}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {name: tiny}
spec: {source: "URL"}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {name: other}
spec: {source: "URL?other"}
---
apiVersion: inference.llmkube.dev/v1alpha1
kind: InferenceService
metadata: {name: chat}
spec: {modelRef: tiny, placement: {nodes: [box]}}
"""


class Machine:
    """One state directory, and the commands on it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state = root / "state"
        self.models = self.state / "models"
        self._capsys = capsys
        self.errors = ""

    def run(self, command: str, *words: str) -> tuple[int, str]:
        """The exit code and what it printed."""
        code = main([command, "--state-dir", str(self.state), *words])
        printed = self._capsys.readouterr()
        self.errors = printed.err
        return code, printed.out

    def json(self, command: str, *words: str) -> list[dict[str, Any]]:
        code, out = self.run(command, "-o", "json", *words)
        assert code in {0, 3}, self.errors
        models: list[dict[str, Any]] = json.loads(out)["models"]
        return models


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Machine:
    return Machine(tmp_path, capsys)


def fleet(tmp_path: Path, url: str, other: str = "?other") -> Path:
    folder = tmp_path / "fleet"
    folder.mkdir()
    (folder / "all.yaml").write_text(FLEET.replace("?other", other).replace("URL", url))
    return folder


def tiny(tmp_path: Path, seed: int = 0) -> Path:
    return tiny_llama(tmp_path / f"tiny{seed}.gguf", seed=seed)


def test_fetch_brings_the_models_of_this_nodes_services(machine: Machine, tmp_path: Path) -> None:
    data = tiny(tmp_path).read_bytes()
    with FileServer(data) as server:
        where = str(fleet(tmp_path, server.url))

        (found,) = machine.json("fetch", "--fleet", where)
        again = machine.json("fetch", "--fleet", where)

        assert found["name"] == "tiny"
        assert found["sha256"] == hashlib.sha256(data).hexdigest()
        assert Path(found["path"]).read_bytes() == data
        assert again == [found]
        assert len(server.requests) == 1


def test_fetch_brings_what_is_named_and_says_what_there_is(
    machine: Machine, tmp_path: Path
) -> None:
    with FileServer(tiny(tmp_path).read_bytes()) as server:
        where = str(fleet(tmp_path, server.url))

        (found,) = machine.json("fetch", "--fleet", where, "other")
        code, _ = machine.run("fetch", "--fleet", where, "absent")

    assert found["name"] == "other"
    assert code == 64
    assert "absent: the fleet has no such Model; there is" in machine.errors
    assert "tiny" in machine.errors


def test_fetch_says_what_cannot_be_had(machine: Machine, tmp_path: Path) -> None:
    with FileServer(b"no model") as server:
        code, out = machine.run("fetch", "--fleet", str(fleet(tmp_path, server.url)))

    assert code == 1
    assert "tiny: the downloaded file is not a usable GGUF file" in out


def test_no_terminal_obeys_what_a_host_says_in_the_place_of_a_status_line(tmp_path: Path) -> None:
    with OneLineServer(f"SSH-2.0-{OBEYED}evil") as server:
        where = str(fleet(tmp_path, server.url))
        words = ("fetch", "--state-dir", str(tmp_path / "state"), "--fleet", where)
        argv = (str(Path(sys.executable).parent / "fleet-agent"), *words)
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as fetch:
            assert fetch.stderr is not None
            said = fetch.stderr.readline()
            fetch.kill()  # it would try again, four times

    assert b"SSH-2.0-\\x1b]0;title\\x07\\x1b[31mevil" in said


def test_no_terminal_obeys_the_name_of_a_model_file(machine: Machine, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / f"{OBEYED}.gguf").write_bytes(b"no model")
    where = fleet(tmp_path, f"{theirs.as_uri()}/", other="")

    code, out = machine.run("fetch", "--fleet", str(where), "tiny")

    assert code == 1
    assert "\x1b" not in out + machine.errors
    assert "title??[31m.gguf: a path uses / and printable characters only" in out


def test_an_imported_file_needs_no_download(machine: Machine, tmp_path: Path) -> None:
    path = tiny(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()

    code, out = machine.run("store", "import", str(path))
    path.unlink()

    store = ModelStore(machine.models)
    assert code == 0
    assert out.strip() == digest
    wanted = ModelFile("m", "https://unreachable.example/m.gguf", "gguf", digest)
    assert store.lookup(wanted) is not None
    assert store.facts(digest) is not None


def test_an_import_may_answer_for_a_source_and_be_replaced(
    machine: Machine, tmp_path: Path
) -> None:
    first, second = tiny(tmp_path, 1), tiny(tmp_path, 2)
    source = "hf://org/repo/m.gguf@main"
    wanted = ModelFile("m", source, "gguf")

    machine.run("store", "import", str(first), "--source", source)
    before = ModelStore(machine.models).lookup(wanted)
    machine.run("store", "import", str(second), "--source", source)
    after = ModelStore(machine.models).lookup(wanted)

    assert before is not None
    assert after is not None
    assert before.digest == hashlib.sha256(first.read_bytes()).hexdigest()
    assert after.digest == hashlib.sha256(second.read_bytes()).hexdigest()
    listed = {m["sha256"]: m["sources"] for m in machine.json("store", "list")}
    assert listed == {before.digest: [], after.digest: [source]}


def test_what_was_fetched_is_listed_with_where_it_came_from(
    machine: Machine, tmp_path: Path
) -> None:
    first, second = (tiny(tmp_path, seed).read_bytes() for seed in (0, 1))
    with FileServer(first) as server:
        where = fleet(tmp_path, server.url)
        machine.run("fetch", "--fleet", str(where))
        server.data, server.etag = second, '"v2"'
        pinned = f'source: "{server.url}", sha256: {hashlib.sha256(second).hexdigest()}'
        file = where / "all.yaml"
        file.write_text(file.read_text().replace(f'source: "{server.url}"', pinned, 1))
        machine.run("fetch", "--fleet", str(where))
    machine.run("store", "import", str(tiny(tmp_path, 2)))

    _, out = machine.run("store", "list")

    ends = {line.partition("gguf")[2].strip() for line in out.splitlines()}
    assert ends == {server.url, f"fetched from {server.url}", "tiny2.gguf, imported"}


def test_a_folder_is_imported_whole(machine: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "qwen"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x" * 1000)

    (found,) = machine.json("store", "import", str(folder), "--format", "mlx")

    assert Path(found["path"]).is_dir()
    assert [file["path"] for file in found["files"]] == ["config.json", "model.safetensors"]


def test_a_push_says_the_source_that_a_model_then_has(machine: Machine, tmp_path: Path) -> None:
    _, digest = machine.run("store", "import", str(tiny(tmp_path)))
    with Registry() as registry:
        registry.scheme = ""
        target = f"oci://{registry.host}/team/tiny:1"

        (found,) = machine.json("store", "push", "tiny0.gguf", target)
        code, out = machine.run("store", "push", digest.strip(), target)

        assert (code, out.strip()) == (0, found["source"])
        assert found["source"].startswith(f"{target}@sha256:")
        assert f"sha256: {digest.strip()} and format: gguf is it" in machine.errors
        wanted = ModelFile("m", found["source"], "gguf", digest.strip())
        store = ModelStore(tmp_path / "other")
        store.ensure(wanted)
        wait_for(lambda: store.lookup(wanted) is not None, lambda: store.download_of(wanted))
        store.close()


def test_a_push_needs_a_tag(machine: Machine, tmp_path: Path) -> None:
    _, digest = machine.run("store", "import", str(tiny(tmp_path)))

    assert machine.run("store", "push", digest.strip(), "oci://registry.example/team/tiny")[0] == 64
    assert "write oci://REGISTRY/REPOSITORY:TAG" in machine.errors


def test_what_cannot_be_imported_is_refused(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_bytes(b"secret words, and more of them than a header has")

    absent, _ = machine.run("store", "import", str(tmp_path / "absent.gguf"))
    assert "there is no such file or folder" in machine.errors
    text, _ = machine.run("store", "import", str(tmp_path / "text.gguf"))

    assert (absent, text) == (64, 1)
    assert "does not begin with GGUF" in machine.errors
    assert "secr" not in machine.errors


def test_verify_finds_a_changed_byte_and_takes_the_model_out_of_use(
    machine: Machine, tmp_path: Path
) -> None:
    (good,) = machine.json("store", "import", str(tiny(tmp_path, 1)))
    (bad,) = machine.json("store", "import", str(tiny(tmp_path, 2)))
    path = Path(bad["path"])
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")

    with_it = launch("chat", 20000, bad["path"])
    child = Child(Identity(7, "1", "b"), "m", 0.0)
    state = StateDir.open(machine.state)
    Records(state).write(ProcessRecord(with_it, wanted=True, boot="b", marker="m", child=child))

    looked = machine.json("store", "verify", "--dry-run")
    whole = machine.json("store", "verify", "tiny1.gguf")
    code, out = machine.run("store", "verify")

    again = f"`fleet-agent restart default/chat{state.option}` reads it anew"
    assert again in machine.errors
    assert {m["sha256"] for m in looked if m["damage"]} == {bad["sha256"]}
    assert [(m["sha256"], m["damage"]) for m in whole] == [(good["sha256"], None)]
    assert code == 3
    assert bad["sha256"][:12] in out
    assert [m["sha256"] for m in machine.json("store", "list")] == [good["sha256"]]
    aside = machine.models / "corrupt" / bad["sha256"]
    assert aside.is_dir()
    assert machine.run("store", "verify")[0] == 0
    store = ModelStore(machine.models)
    store.collect({good["sha256"]})
    assert aside.is_dir(), "for a person to look at"
    os.utime(aside, (0, time.time() - 8 * 24 * 3600))
    store.collect({good["sha256"]})
    store.close()
    assert not aside.exists()


def test_gc_removes_only_what_no_revision_and_no_person_needs(
    machine: Machine, tmp_path: Path
) -> None:
    imported = {}
    for seed in range(3):
        (found,) = machine.json("store", "import", str(tiny(tmp_path, seed)))
        imported[seed] = found["sha256"]
    old = time.time() - 31 * 24 * 3600
    for seed in (0, 1):  # brought by hand long ago
        os.utime(machine.models / "pins" / imported[seed], (old, old))
    KeptModels(machine.state / "desired" / "models.json").note("r1", [imported[1]], 3)

    would = machine.json("store", "gc", "--dry-run")
    before = machine.json("store", "list")
    went = machine.json("store", "gc")

    assert [m["sha256"] for m in would] == [imported[0]]
    assert len(before) == 3
    assert [m["sha256"] for m in went] == [imported[0]]
    left = {m["sha256"] for m in machine.json("store", "list")}
    assert left == {imported[1], imported[2]}


def test_gc_leaves_the_store_to_an_agent_that_runs(machine: Machine, tmp_path: Path) -> None:
    machine.run("store", "import", str(tiny(tmp_path)))
    state = StateDir.open(machine.state)
    state.lock()

    code, _ = machine.run("store", "gc")
    refusal = machine.errors
    would, _ = machine.run("store", "gc", "--dry-run")
    state.unlock()

    assert (code, would) == (1, 0)
    assert f"pid {os.getpid()} runs, and removes by itself what nothing needs" in refusal


@pytest.mark.parametrize("named", ["file", "digest", "source"])
def test_rm_removes_one_model_by_what_list_shows_of_it(
    machine: Machine, tmp_path: Path, named: str
) -> None:
    (stays,) = machine.json("store", "import", str(tiny(tmp_path, 1)))
    (goes,) = machine.json("store", "import", str(tiny(tmp_path, 2)), "--source", "pypi://tiny==1")
    name = {"file": "tiny2.gguf", "digest": goes["sha256"][:12], "source": "pypi://tiny==1"}[named]

    would, said = machine.run("store", "rm", name, "--dry-run")
    before = machine.json("store", "list")
    code, out = machine.run("store", "rm", name)

    assert (would, code, len(before)) == (0, 0, 2)
    assert said.endswith("tiny2.gguf  would go\n")
    assert out.endswith("tiny2.gguf  removed\n")
    assert f"{show_bytes(goes['sizeBytes'])} removed" in machine.errors
    assert [m["sha256"] for m in machine.json("store", "list")] == [stays["sha256"]]
    assert [pin.name for pin in (machine.models / "pins").iterdir()] == [stays["sha256"]]


@pytest.mark.parametrize(
    "action", [("rm",), ("verify",), ("push", "oci://registry.example/tiny:1")], ids=lambda a: a[0]
)
def test_a_name_of_no_model_or_of_several_is_refused(
    action: tuple[str, ...], machine: Machine, tmp_path: Path
) -> None:
    digests = []
    for seed in (1, 2):
        (folder := tmp_path / str(seed)).mkdir()
        (found,) = machine.json(
            "store", "import", str(tiny(tmp_path, seed).rename(folder / "same.gguf"))
        )
        digests.append(found["sha256"][:12])
    verb, *words = action

    assert machine.run("store", verb, "nothing", *words)[0] == 64
    none = "nothing: no model here is called so; `fleet-agent store list` shows all"
    assert none in machine.errors
    assert machine.run("store", verb, "same.gguf", *words)[0] == 64

    assert all(digest in machine.errors for digest in digests)
    assert len(machine.json("store", "list")) == 2


def test_an_empty_name_removes_no_model(machine: Machine, tmp_path: Path) -> None:
    """As of a variable that is not set, where only one model is there."""
    machine.run("store", "import", str(tiny(tmp_path)))

    assert machine.run("store", "rm", "")[0] == 64
    assert "one of the names is empty; nothing was done" in machine.errors
    assert len(machine.json("store", "list")) == 1


@pytest.mark.parametrize("known", ["command", "digest", "source"])
def test_rm_leaves_all_where_a_service_needs_one_and_names_it(
    machine: Machine, tmp_path: Path, known: str
) -> None:
    (free,) = machine.json("store", "import", str(tiny(tmp_path, 1)))
    (used,) = machine.json("store", "import", str(tiny(tmp_path, 2)), "--source", "pypi://tiny==1")
    pinned = ModelFile("tiny", "hf://org/tiny/tiny.gguf", "gguf", used["sha256"])
    meant = {"digest": pinned, "source": ModelFile("tiny", "pypi://tiny==1", "gguf")}
    models = [meant[known].inputs] if known in meant else []
    argv = [used["path"]] if known == "command" else []
    process = launch("chat", 20000, *argv, inputs={"models": models})
    Records(StateDir.open(machine.state)).write(ProcessRecord(process, wanted=True, boot="b"))

    for dry_run in (["--dry-run"], []):
        code, out = machine.run("store", "rm", "tiny1.gguf", "tiny2.gguf", *dry_run)

        assert code == 3
        assert out.endswith("tiny2.gguf  needed by default/chat\n")
        assert len(out.splitlines()) == 1  # nobody needs the other
        assert "`reconcile rm NAME`" in machine.errors
    code, out = machine.run("store", "-o", "json", "rm", used["sha256"])
    assert [each["neededBy"] for each in json.loads(out)["needed"]] == [["default/chat"]]
    left = {m["sha256"] for m in machine.json("store", "list")}
    assert left == {free["sha256"], used["sha256"]}


def test_rm_keeps_what_the_last_revision_declares_and_no_older_one(
    machine: Machine, tmp_path: Path
) -> None:
    (older,) = machine.json("store", "import", str(tiny(tmp_path, 1)))
    (newest,) = machine.json("store", "import", str(tiny(tmp_path, 2)))
    kept = KeptModels(machine.state / "desired" / "models.json")
    kept.note("a" * 40, [older["sha256"], newest["sha256"]], 3)
    kept.note("b" * 40, [newest["sha256"]], 3)

    code, out = machine.run("store", "rm", "tiny2.gguf")
    went = machine.json("store", "rm", "tiny1.gguf")

    assert (code, "needed by revision bbbbbbb, which" in out) == (3, True)
    assert [m["sha256"] for m in went] == [older["sha256"]]


def test_rm_asks_who_needs_a_model_while_nobody_stores_one(
    machine: Machine, tmp_path: Path
) -> None:
    (goes,) = machine.json("store", "import", str(tiny(tmp_path)))
    state = StateDir.open(machine.state)
    state.lock()  # an agent runs
    with (machine.models / "shelf.lock").open() as storing, ThreadPoolExecutor() as pool:
        fcntl.flock(storing, fcntl.LOCK_EX)
        removing = pool.submit(machine.run, "store", "rm", goes["sha256"])
        wait_for(lambda: _waits_for_a_lock() or removing.done(), "the command waits")
        # just now the agent begins to need it
        process = launch("chat", 20000, goes["path"], inputs={"models": []})
        Records(state).write(ProcessRecord(process, wanted=True, boot="b"))
        fcntl.flock(storing, fcntl.LOCK_UN)

        code, out = removing.result()
    state.unlock()

    assert (code, "needed by default/chat" in out) == (3, True)
    assert Path(goes["path"]).exists()


def _waits_for_a_lock() -> bool:
    locks = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f" {os.getpid()} " in line for line in locks)


def test_the_store_is_listed_for_people(machine: Machine, tmp_path: Path) -> None:
    machine.run("store", "import", str(tiny(tmp_path)), "--source", "pypi://tiny==1.0")

    code, out = machine.run("store", "list")

    assert code == 0
    assert "gguf" in out
    assert "pypi://tiny==1.0" in out
    assert "1 model," in machine.errors


def test_options_of_the_store_stand_before_and_after_what_is_done_with_it(
    machine: Machine, tmp_path: Path
) -> None:
    state = str(machine.state)
    before = parser_of("store").parse_args(["--state-dir", state, "-o", "json", "list"])
    after = parser_of("store").parse_args(["list", "--state-dir", state, "-o", "json"])

    assert vars(before) == vars(after)
    assert parser_of("store").parse_args(["list"]).output == "text"


def test_the_help_of_the_store_has_a_line_for_each_use() -> None:
    lines = parser_of("store").format_help().splitlines()

    for use in ("list", "verify", "import", "push", "rm", "gc"):
        assert [line for line in lines if line.startswith(f"  fleet-agent store {use}")], use
