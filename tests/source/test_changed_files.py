"""Model files that change, appear or are repaired while no YAML file does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.loop import Loop, LoopTiming, Wake, steps_of
from reconciler.loop.journal import SourceJournal
from reconciler.runtimes import RUNTIMES
from reconciler.source.checkout import Source
from reconciler.source.directory import DirectorySource
from reconciler.source.history import HistoryFile
from reconciler.source.load import LoadCache, load
from reconciler.source.open import open_source
from reconciler.source.worktree import WorktreeSource
from tests.support.fleets import model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.repos import Repo
from tests.support.said import Said
from tests.support.targets import InMemoryTarget, NoJournal
from tests.support.wait import PATIENCE_S

AT_ONCE = LoopTiming(still_s=0)
GGUF = {
    "node.yaml": node(hardware={"memory": "16Gi"}),
    "model.yaml": model("tiny", source="tiny.gguf"),
    "service.yaml": service("chat", "tiny", contextSize=512),
}
MLX = {
    "node.yaml": node(runtimes=["mlx-lm"], hardware={"memory": "16Gi"}),
    "model.yaml": model("tiny", source="models/tiny/", format="mlx"),
    "service.yaml": service("chat", "tiny", runtime="mlx-lm"),
    "models/tiny/config.json": "{}",
    "models/tiny/tokenizer_config.json": "{}",
    "models/tiny/model.safetensors": b"\0" * 5000,
}


class World:
    """A folder that a loop follows, and what it runs in memory."""

    def __init__(self, root: Path, source: Source, **options: Any) -> None:
        self.root, self.target, self.said = root, InMemoryTarget(), Said()
        cache = LoadCache()
        self.loop = Loop(
            **{
                "source": source,
                "read": lambda checkout, held: load(checkout, RUNTIMES, cache, held),
                "steps": steps_of(self.target),
                "journal": NoJournal(),
                "listeners": [self.said],
                "wake": Wake(),
                "timing": AT_ONCE,
            }
            | options
        )

    def one_pass(self) -> None:
        self.loop.fetch()
        self.loop.sync()

    @property
    def blocked(self) -> list[str]:
        return [item.message for item in self.said.plans[-1].blocked]


def plain(folder: Path, files: dict[str, Any]) -> World:
    write_fleet(folder, files)
    return World(folder, DirectorySource(folder))


def committed(folder: Path, files: dict[str, Any]) -> World:
    repo = Repo.create(folder)
    repo.publish(files)
    return World(repo.work, WorktreeSource(repo.work))


def ignored(folder: Path, files: dict[str, Any]) -> World:
    """A work tree whose model files git ignores."""
    repo = Repo.create(folder)
    own = {path: text for path, text in files.items() if path.endswith(".yaml")}
    repo.publish(own | {".gitignore": "*.gguf\nmodels/\n"})
    write_fleet(repo.work, files)
    return World(repo.work, WorktreeSource(repo.work))


Make = Callable[[Path, dict[str, Any]], World]
KINDS = pytest.mark.parametrize("make", [plain, committed, ignored])


@KINDS
def test_a_model_file_of_the_same_size_that_is_replaced_is_seen(make: Make, tmp_path: Path) -> None:
    bytes_of = [tiny_llama(tmp_path / f"{n}.gguf", seed=n).read_bytes() for n in range(2)]
    world = make(tmp_path / "fleet", GGUF | {"tiny.gguf": bytes_of[0]})
    world.one_pass()
    before = world.target.pid("chat")

    (world.root / "tiny.gguf").write_bytes(bytes_of[1])
    world.one_pass()

    assert len(bytes_of[0]) == len(bytes_of[1])
    assert world.target.pid("chat") not in (None, before)


@KINDS
def test_a_damaged_model_file_that_is_repaired_is_seen(make: Make, tmp_path: Path) -> None:
    whole = tiny_llama(tmp_path / "whole.gguf").read_bytes()
    world = make(tmp_path / "fleet", GGUF | {"tiny.gguf": whole[:1000]})
    world.one_pass()
    damaged = world.blocked

    (world.root / "tiny.gguf").write_bytes(whole)
    world.one_pass()

    assert len(damaged) == 1
    assert "undamaged" in damaged[0]
    assert world.blocked == []
    assert world.target.names() == {"chat"}


@KINDS
def test_a_model_file_that_comes_and_goes_is_seen(make: Make, tmp_path: Path) -> None:
    world = make(tmp_path / "fleet", GGUF)
    file = world.root / "tiny.gguf"
    world.one_pass()
    before = world.blocked

    tiny_llama(file)
    world.one_pass()
    during = world.blocked
    file.unlink()
    world.one_pass()

    assert "is not in the fleet's folder" in before[0]
    assert during == []
    assert "is not in the fleet's folder" in world.blocked[0]
    assert world.target.names() == {"chat"}  # as it runs


@KINDS
@pytest.mark.parametrize(
    "path", ["tokenizer_config.json", "config.json", "chat_template.jinja", "new/more.json"]
)
def test_every_file_of_a_models_folder_is_seen(make: Make, tmp_path: Path, path: str) -> None:
    world = make(tmp_path / "fleet", MLX)
    world.one_pass()
    before = world.target.pid("chat")

    write_fleet(world.root, {f"models/tiny/{path}": "[]"})
    world.one_pass()

    assert before is not None
    assert world.target.pid("chat") not in (None, before)


def test_a_model_file_that_is_being_copied_is_followed_once_it_is_still(tmp_path: Path) -> None:
    whole = tiny_llama(tmp_path / "whole.gguf", seed=1).read_bytes()
    first = tiny_llama(tmp_path / "first.gguf").read_bytes()
    world = plain(tmp_path / "fleet", GGUF | {"tiny.gguf": first})
    world.one_pass()
    before, read = world.target.pid("chat"), world.loop.desired
    world.loop.revisions.timing = LoopTiming(still_s=3600)

    for end in (1000, 2000, len(whole)):
        (world.root / "tiny.gguf").write_bytes(whole[:end])
        world.one_pass()
    during = world.loop.desired
    world.loop.revisions.timing = AT_ONCE
    world.one_pass()

    assert during is read
    assert world.target.pid("chat") not in (None, before)


def test_a_loop_looks_again_by_itself_at_a_file_that_is_being_copied(tmp_path: Path) -> None:
    world = plain(tmp_path / "fleet", GGUF)
    world.one_pass()
    world.loop.revisions.timing = LoopTiming(still_s=0.01)
    tiny_llama(world.root / "tiny.gguf")
    world.loop.wake.wait(0)  # a new one asks for a fetch by itself

    world.loop.fetch()

    assert world.loop.wake.wait(PATIENCE_S)


@KINDS
def test_nothing_is_read_again_while_no_file_changes(make: Make, tmp_path: Path) -> None:
    world = make(tmp_path / "fleet", GGUF)
    tiny_llama(world.root / "tiny.gguf")
    world.one_pass()
    read = world.loop.desired

    write_fleet(world.root, {"notes.txt": "x"})
    world.one_pass()

    assert world.loop.desired is read
    assert [len(plan.changes) for plan in world.said.plans] == [1, 0]


def test_a_service_that_a_repaired_model_brought_is_remembered_as_ours(tmp_path: Path) -> None:
    write_fleet(tmp_path / "fleet", GGUF)
    source = DirectorySource(tmp_path / "fleet")
    journal = SourceJournal(HistoryFile(tmp_path / "history.json"), source)
    world = World(tmp_path / "fleet", source, journal=journal)
    world.one_pass()
    tiny_llama(world.root / "tiny.gguf")

    world.one_pass()

    assert journal.last is not None
    assert journal.last.services == ("default/chat",)


def test_an_edit_of_a_models_folder_is_an_edit_of_the_work_tree(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    sha = repo.publish(MLX)
    clean = WorktreeSource(repo.work).fetch()
    repo.write("models/tiny/tokenizer_config.json", "[]")

    edited = WorktreeSource(repo.work).fetch()

    assert clean.revision == sha
    assert clean.commit_of("models/tiny/") == sha
    assert edited.revision.startswith(f"{sha}+dirty.")
    assert edited.uncommitted == ("models/tiny/tokenizer_config.json",)
    assert edited.commit_of("models/tiny/") is None


@pytest.mark.parametrize("make", [DirectorySource, WorktreeSource])
def test_a_file_is_read_again_only_if_it_changed_or_its_stamp_is_too_new_to_tell(
    make: Callable[[Path], Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, opened, real, began_ns = Repo.create(tmp_path), list[str](), os.open, time.time_ns()
    repo.publish(MLX)
    source = make(repo.work)

    def counted(path: str, flags: int, *more: int, dir_fd: int | None = None) -> int:
        opened.append(str(path))
        return real(path, flags, *more, dir_fd=dir_fd)

    def read() -> list[str]:
        opened.clear()
        source.fetch()
        return sorted(path for path in opened if path.endswith((".yaml", ".json")))

    monkeypatch.setattr(os, "open", counted)
    monkeypatch.setattr(time, "time_ns", lambda: began_ns)  # however long git has taken
    first, again = read(), read()
    monkeypatch.setattr(time, "time_ns", lambda: began_ns + 3600 * 10**9)
    later = read()
    repo.write("models/tiny/config.json", "[]")
    repo.write("node.yaml", f"{MLX['node.yaml']}\n")
    changed = read()

    assert again == first
    assert later == []
    assert changed == [path for path in first if path in ("config.json", "node.yaml")]


def test_a_file_deleted_from_a_models_folder_is_an_edit_of_the_work_tree(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    repo.publish(MLX)
    (repo.work / "models/tiny/tokenizer_config.json").unlink()

    checkout = WorktreeSource(repo.work).fetch()

    assert checkout.uncommitted == ("models/tiny/tokenizer_config.json",)


def test_what_lies_beside_no_weights_is_no_edit_of_the_work_tree(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    sha = repo.publish(GGUF | {"app/config.json": "{}", "README.md": "x", "top.safetensors": "x"})
    repo.write("app/config.json", "[]")
    repo.write("README.md", "y")

    assert (
        open_source(str(repo.work), cache_dir=tmp_path, working_tree=True).fetch().revision == sha
    )
