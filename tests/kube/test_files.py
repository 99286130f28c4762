"""`reconcile render`: a folder for Flux or Argo CD, kept equal to a fleet, and the images."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.cli import main
from reconciler.cli.rendered import LIST
from reconciler.kube.render.files import files_of, warnings_of
from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from reconciler.source.open import open_source
from tests.support import forked
from tests.support.fleets import document, model, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.manifests import URL, pool
from tests.support.repos import Repo
from tests.support.wait import PATIENCE_S

RECONCILE = Path(sys.executable).parent / "reconcile"
ON: dict[str, Any] = {"placement": {"nodes": ["edge"]}}
BLOCKED, USAGE = 3, 64


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    texts = {"edge.yaml": pool(), "gemma.yaml": model(), "chat.yaml": service("chat", **ON)}
    return write_fleet(tmp_path / "fleet", texts | {"embed.yaml": service("embed", **ON)})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def reconcile(*words: str | Path, rc: int = 0) -> str:
    argv = [str(RECONCILE), *map(str, words)]
    done = forked.run(argv, env=os.environ, cwd=Path.cwd(), timeout_s=PATIENCE_S)
    assert done.returncode == rc, done.stdout + done.stderr
    return done.stdout + done.stderr


def files(folder: Path) -> dict[str, str]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_each_service_is_a_file_with_its_objects(fleet: Path, out: Path) -> None:
    reconcile("render", "-C", fleet, "-o", out)

    assert set(files(out)) == {"prod/default/chat.yaml", "prod/default/embed.yaml", LIST}
    documents = yaml.safe_load_all((out / "prod/default/chat.yaml").read_text())
    assert [document["kind"] for document in documents] == ["Service", "Deployment"]


def test_twice_is_as_once(fleet: Path, out: Path) -> None:
    reconcile("render", "-C", fleet, "-o", out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.yaml")}

    said = reconcile("render", "-C", fleet, "-o", out)

    assert "0 written, 0 removed, 2 unchanged" in said
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.yaml")} == before


def test_a_service_that_is_gone_takes_its_file_along_and_nothing_else(
    fleet: Path, out: Path
) -> None:
    theirs = {
        "prod/default/ours.yaml": "kind: ConfigMap\n",
        "kustomization.yaml": "resources: []\n",
    }
    write_fleet(out, theirs)
    reconcile("render", "-C", fleet, "-o", out)
    (fleet / "embed.yaml").unlink()

    reconcile("render", "-C", fleet, "-o", out)

    assert set(files(out)) == {*theirs, "prod/default/chat.yaml", LIST}
    assert {path: files(out)[path] for path in theirs} == theirs


def test_folders_go_with_their_last_file(fleet: Path, out: Path) -> None:
    reconcile("render", "-C", fleet, "-o", out)
    for name in ("chat", "embed"):
        (fleet / f"{name}.yaml").unlink()

    reconcile("render", "-C", fleet, "-o", out)

    assert set(files(out)) == {LIST}
    assert list(out.iterdir()) == [out / LIST]


def test_somebody_elses_file_is_never_written_over(fleet: Path, out: Path) -> None:
    write_fleet(out, {"prod/default/chat.yaml": "mine: true\n"})

    said = reconcile("render", "-C", fleet, "-o", out, rc=USAGE)

    assert "prod/default/chat.yaml is there and not ours" in said
    assert files(out) == {"prod/default/chat.yaml": "mine: true\n"}


def test_a_file_that_somebody_edited_becomes_what_it_was(fleet: Path, out: Path) -> None:
    reconcile("render", "-C", fleet, "-o", out)
    before = files(out)
    (out / "prod/default/chat.yaml").write_text("edited: true\n")

    reconcile("render", "-C", fleet, "-o", out)

    assert files(out) == before


def test_a_list_that_leads_out_of_the_folder_removes_nothing_there(fleet: Path, out: Path) -> None:
    precious = out.parent / "precious.yaml"
    precious.write_text("kept: true\n")
    write_fleet(out, {LIST: f"../precious.yaml\n{precious}\nprod/../../precious.yaml\n"})

    reconcile("render", "-C", fleet, "-o", out)

    assert precious.read_text() == "kept: true\n"


def test_a_link_is_not_followed(fleet: Path, out: Path) -> None:
    elsewhere = out.parent / "elsewhere"
    elsewhere.mkdir()
    out.mkdir()
    (out / "prod").symlink_to(elsewhere)

    assert "prod is a link" in reconcile("render", "-C", fleet, "-o", out, rc=USAGE)
    link = out.parent / "link"
    link.symlink_to(elsewhere)
    assert "link is a link" in reconcile("render", "-C", fleet, "-o", link, rc=USAGE)
    assert list(elsewhere.iterdir()) == []


def test_a_held_service_keeps_its_file_as_it_is(fleet: Path, out: Path) -> None:
    reconcile("render", "-C", fleet, "-o", out)
    before = files(out)
    (fleet / "chat.yaml").write_text(service("chat", runtime="mlx-lm", **ON))

    said = reconcile("render", "-C", fleet, "-o", out, rc=BLOCKED)

    assert "chat.yaml" in said
    assert files(out) == before


def test_a_cluster_of_several_is_written_alone(fleet: Path, out: Path) -> None:
    write_fleet(fleet, {"far.yaml": pool("far", kubernetes={"cluster": "far"})})
    write_fleet(fleet, {"there.yaml": service("there", placement={"nodes": ["far"]})})

    reconcile("render", "-C", fleet, "--cluster", "far", "-o", out)

    assert set(files(out)) == {"far/default/there.yaml", LIST}


def test_a_pool_without_a_cluster_is_one_of_the_only_cluster(fleet: Path, out: Path) -> None:
    (fleet / "edge.yaml").write_text(pool(kubernetes={}))

    reconcile("render", "-C", fleet, "--cluster", "home=my-context", "-o", out)

    assert set(files(out)) == {"home/default/chat.yaml", "home/default/embed.yaml", LIST}


def test_the_word_of_a_format_is_no_folder(fleet: Path) -> None:
    assert "this prints text, json" in reconcile("render", "-C", fleet, "-o", "yaml", rc=USAGE)


def test_the_images_are_listed_with_who_runs_them(fleet: Path) -> None:
    images = document("Fleet", "home", {"images": {"vllm": {"rocm": "registry.lan/vllm:1"}}})
    write_fleet(fleet, {"fleet.yaml": images})
    (fleet / "embed.yaml").write_text(service("embed", image="registry.lan/llama:2", **ON))

    rows = json.loads(reconcile("render", "-C", fleet, "--images", "-o", "json"))

    used = {(r["image"], r["statedBy"]): [s["name"] for s in r["services"]] for r in rows}
    assert used["registry.lan/vllm:1", "Fleet"] == []
    assert used["registry.lan/llama:2", "service"] == ["embed"]
    (plain,) = [r for r in rows if r["services"] and r["statedBy"] == "default" and
                r["runtime"] == "llama-server"]  # fmt: skip
    assert plain["accelerator"] == "cpu"
    assert [s["name"] for s in plain["services"]] == ["chat"]


def test_a_model_of_the_repository_is_fetched_at_the_commit_that_touched_it(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    repo.write("edge.yaml", pool())
    repo.write("gemma.yaml", model(source="models/tiny.gguf"))
    repo.write("chat.yaml", service("chat", **ON))
    shutil.copy(tiny_llama(tmp_path / "tiny.gguf"), repo.write("models/tiny.gguf", b""))
    first = repo.commit()
    before = files_of(_desired(repo, tmp_path), (), URL)
    repo.write("README.md", "words")
    repo.commit()

    desired = _desired(repo, tmp_path)

    assert files_of(desired, (), URL) == before
    assert first in before["prod/default/chat.yaml"]
    assert URL in before["prod/default/chat.yaml"]
    assert warnings_of(desired, (), URL) == ()
    assert [w.rule for w in warnings_of(desired, (), None)] == ["ModelNotReachable"]


def test_an_uncommitted_model_of_the_repository_is_warned_of(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    repo.commit()
    repo.write("edge.yaml", pool())
    repo.write("gemma.yaml", model(source="models/tiny.gguf"))
    repo.write("chat.yaml", service("chat", **ON))
    shutil.copy(tiny_llama(tmp_path / "tiny.gguf"), repo.write("models/tiny.gguf", b""))

    (warning,) = warnings_of(_desired(repo, tmp_path), (), URL)

    assert "not committed" in warning.message


def _desired(repo: Repo, tmp_path: Path) -> Desired:
    checkout = open_source(str(repo.work), cache_dir=tmp_path / "cache", working_tree=True).fetch()
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None, loaded.problems
    return Desired.of(checkout, loaded, loaded.fleet, no_facts)


def test_links_that_a_branch_brought_lead_nowhere(fleet: Path, out: Path, tmp_path: Path) -> None:
    """At the name that a file had while it was written."""
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    (out / "prod/default").mkdir(parents=True)
    for name in (f".chat.yaml.{os.getpid()}.tmp", f".embed.yaml.{os.getpid()}.tmp"):
        (out / "prod/default" / name).symlink_to(outside)

    code = main(["render", "-C", str(fleet), "-o", str(out)])

    assert code == 0
    assert outside.read_text() == "theirs"
