"""`reconcile completion`: in the shells themselves, with the names of a fleet."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.api.meta import GROUP
from reconciler.cli import fleet_names, main
from reconciler.cli.fleet_names import declared_names
from tests.support.fleets import small_fleet, write_fleet
from tests.support.wait import wait_for

BIN = Path(sys.executable).parent
NOTHING = subprocess.DEVNULL
_BASH = """
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); COMP_LINE="{words}"
_shtab_reconcile
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
_FISH = """source {script}; complete -C "{words}" | string split -f1 \\t"""
_SHELLS = {"bash": (("bash", "--norc", "-c"), _BASH), "fish": (("fish", "-N", "-c"), _FISH)}
_OFFERED = {
    "reconcile logs ch": {"chat"},
    "reconcile ask ge": {"gemma"},
    "reconcile open ma": {"mac"},
    "reconcile rm model/": {"model/gemma"},
    "reconcile status --not": {"--not-ready"},
    "reconcile susp": {"suspend"},
    "reconcile validate -o sa": {"sarif"},
    "reconcile help resu": {"resume"},
}


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return write_fleet(tmp_path / "fleet", small_fleet())


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Path:
    assert main(["completion", shell, *words]) == 0
    file = folder / f"_{shell}"
    file.write_text(capsys.readouterr().out)
    return file


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(shell)) for shell in _SHELLS])
def test_a_shell_offers_commands_options_and_the_names_of_the_fleet(
    shell: str, fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, text = _SHELLS[shell]
    file = script(shell, tmp_path, capsys)
    env = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def are_offered(words: str) -> bool:
        """All of them, where this machine reads the files in the time of a key."""
        line = [*argv, text.format(script=file, words=words)]
        done = subprocess.run(
            line, cwd=fleet, env=env, capture_output=True, text=True, check=False, stdin=NOTHING
        )
        offered = {*done.stdout.split()}
        assert offered <= _OFFERED[words]
        return offered == _OFFERED[words]

    for words in _OFFERED:
        wait_for(lambda words=words: are_offered(words), words)  # type: ignore[misc]


@needs("zsh")
def test_zsh_completes_a_name_that_is_begun(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("zsh", tmp_path, capsys).rename(tmp_path / "_reconcile")
    env = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    ours, its = pty.openpty()
    zsh = subprocess.Popen(
        ["zsh", "-f", "-i"], cwd=fleet, env=env | {"TERM": "dumb"}, stdin=its, stdout=its,
        stderr=its, start_new_session=True,
    )  # fmt: skip
    os.set_blocking(ours, False)
    seen = b""

    def shows(text: bytes) -> bool:
        nonlocal seen
        with contextlib.suppress(BlockingIOError):
            seen += os.read(ours, 65536)
        return text in seen

    try:
        os.write(ours, f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u\n".encode())
        os.write(ours, b"print re''ady\n")
        wait_for(lambda: shows(b"ready"), "compinit")
        os.write(ours, b"print of reconcile; reconcile logs ch")

        def completes() -> bool:
            if not shows(b"logs chat "):
                os.write(ours, b"\t")  # and again, where there was no time for the first one
            return b"logs chat " in seen

        wait_for(completes, "the name")
    finally:
        zsh.kill()
        zsh.wait()
        os.close(ours)
        os.close(its)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_agents_own_commands_are_completed_too(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, tmp_path, capsys, "--agent").read_text()

    assert "leftovers" in text
    assert "--state-dir" in text or "state-dir" in text


def test_nothing_but_names_of_objects_is_offered(tmp_path: Path) -> None:
    head = f"apiVersion: {GROUP}/v1alpha1\nkind: Model\n"
    files = {
        "a.yaml": f"{head}metadata:\n  # the name: of it\n  labels: {{x: y}}\n  name: 'one'\n",
        "b.json": f'{{"apiVersion": "{GROUP}/v1", "kind": "Model", "metadata": {{"name": "two"}}}}',
        "c.yaml": f"{head}metadata: {{name: $(reboot)}}\n---\n{head}metadata: {{name: three}}\n",
        "secret.yaml": "kind: Secret\nmetadata: {name: tls}\ndata: {token: abc}\n",
        ".git/d.yaml": f"{head}metadata: {{name: hidden}}\n",
        "long.yaml": f"{head}metadata:\n" + " \n" * 300_000,
    }
    write_fleet(tmp_path, files)

    assert declared_names(tmp_path, within_s=3600) == {
        ("Model", name) for name in ("one", "two", "three")
    }
    assert declared_names(tmp_path, within_s=-1) == frozenset()


def test_what_a_key_waits_for_imports_none_of_the_kinds() -> None:
    program = (
        "import sys\nfrom reconciler.cli import main\n"
        "main(['completion', '--names', 'service'])\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert not {"pydantic", "ryaml", "shtab", "reconciler.api.kinds"} & {*done.stdout.split()}
    assert fleet_names._GROUP.decode() == f"{GROUP}/"
