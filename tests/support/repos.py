"""Real git repositories for tests: a bare remote, a clone of it, and real pushes.

`Repo.create(tmp_path)` makes `tmp_path/fleet.git` (the remote) and `tmp_path/fleet` (the clone).
Nothing of the developer's own git configuration is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repo:
    """A clone to edit, and the bare remote that it pushes to."""

    work: Path
    remote: Path

    @classmethod
    def create(cls, folder: Path, name: str = "fleet", *, object_format: str = "sha1") -> Repo:
        """An empty remote with a clone on branch main; nothing is committed yet."""
        repo = cls(work=folder / name, remote=folder / f"{name}.git")
        folder.mkdir(parents=True, exist_ok=True)
        made = ("init", "-q", "--initial-branch=main", f"--object-format={object_format}")
        run_git(folder, *made, "--bare", str(repo.remote))
        run_git(folder, *made, str(repo.work))
        repo.git("remote", "add", "origin", str(repo.remote))
        return repo

    def git(self, *args: str) -> str:
        """Run git in the clone; returns its output without the last newline."""
        return run_git(self.work, *args)

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file in the clone, uncommitted."""
        file = self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def copy(self, folder: Path) -> None:
        """Copy a whole folder into the clone, uncommitted."""
        shutil.copytree(folder, self.work, dirs_exist_ok=True)

    def commit(self, message: str = "change", *, push: bool = True, force: bool = False) -> str:
        """Commit everything in the clone as it stands; returns the full sha."""
        self.git("add", "--all", ".")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        if push:
            self.push(force=force)
        return self.head()

    def push(self, *, force: bool = False) -> None:
        """Push the branch that is checked out."""
        self.git("push", "-q", *(["--force"] if force else []), "origin", "HEAD")

    def publish(self, files: Mapping[str, str | bytes], message: str = "change") -> str:
        """Write the files, commit and push; returns the full sha."""
        for path, content in files.items():
            self.write(path, content)
        return self.commit(message)

    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "HEAD")


def run_git(folder: Path, *args: str) -> str:
    """Run git in a folder, isolated from the developer's configuration."""
    done = subprocess.run(
        ["git", *args], cwd=folder, env=git_env(), check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise AssertionError(f"git {' '.join(args)} failed in {folder}:\n{done.stderr}")
    return done.stdout.rstrip("\n")


def git_env() -> dict[str, str]:
    """The environment of a developer who configured nothing."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.com",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.com",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
