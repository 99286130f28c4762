"""The container files, as far as they can be tested without a registry to pull their bases from."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reconciler.kube.install.manifests import Program, deployment

REPOSITORY = Path(__file__).parent.parent.parent
FILES = sorted((REPOSITORY / "deploy" / "containers").glob("*.Containerfile"))

pytestmark = pytest.mark.e2e


def instructions(path: Path) -> list[tuple[str, str]]:
    """(word, rest) of each, continued lines joined."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    told = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return [(word.upper(), rest) for word, _, rest in (line.partition(" ") for line in told)]


def copied(path: Path) -> list[str]:
    """What is copied from the repository."""
    words = [shlex.split(rest) for word, rest in instructions(path) if word == "COPY"]
    return [source for row in words if not row[0].startswith("--from") for source in row[:-1]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_bases_are_pinned_and_nothing_runs_as_root(path: Path) -> None:
    said = instructions(path)

    bases = [rest.partition("=")[2] for word, rest in said if word == "ARG" and "BASE" in rest]
    built_on = {rest.split()[0] for word, rest in said if word == "FROM"}
    assert built_on == {"${BASE}"}
    assert all(re.search(r":\d+\.\d+\.\d+[-\w]*(@sha256:[0-9a-f]{64})?$", base) for base in bases)
    [user] = [rest for word, rest in said if word == "USER"]
    pod = deployment(Program("https://git.test/f.git"))["spec"]["template"]["spec"]
    context = pod["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_copied_is_enough_to_build_the_wheel(path: Path, tmp_path: Path) -> None:
    context = tmp_path / "src"
    context.mkdir()
    for source in copied(path):
        place = REPOSITORY / source
        assert place.exists(), source
        copy = shutil.copytree if place.is_dir() else shutil.copy
        (context / source).parent.mkdir(parents=True, exist_ok=True)
        copy(place, context / source)

    subprocess.run(
        (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, context),
        check=True,
        capture_output=True,
    )

    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "reconciler/data/schemas/crds/models.inference.llmkube.dev.yaml" in names
    assert "reconciler/data/chart/templates/deployment.yaml" in names
    assert any(name.startswith("agent/") for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_copied_is_not_left_out_of_the_context(path: Path) -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text().split()

    assert not set(copied(path)) & set(ignored)
