"""Which files of a tree belong to the fleet, and which paths may be read at all. Pure.

Every source asks the same questions here, so that a folder and a git commit of it agree.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from reconciler.api.meta import GROUP
from reconciler.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP_MARK = f"{GROUP}/".encode()
IGNORE_FILE = ".fleetignore"
IGNORE_LINE = b"# fleet: ignore"
MAX_FILE_BYTES = 2**20  # of YAML; a source hands over one byte more, so that the reader can say so
LFS_MARK = b"version https://git-lfs.github.com/spec/"

_SUFFIXES = (".yaml", ".yml")
_BOM = b"\xef\xbb\xbf"


def is_candidate(path: str, subdir: str = "") -> bool:
    """By its name alone: a YAML file below `subdir` and below no folder that begins with a dot."""
    if not path.endswith(_SUFFIXES):
        return False
    if "/." in f"/{path}" and "/." in f"/{posixpath.dirname(path)}":
        return False
    return not subdir or path.startswith(f"{subdir}/")


def is_fleet_file(data: bytes) -> bool:
    """By its bytes: it mentions our group, and its first line does not exclude it."""
    return GROUP_MARK in data and not is_excluded(data)


def is_excluded(data: bytes) -> bool:
    """Its first line is `# fleet: ignore`."""
    head = data[:64].removeprefix(_BOM)
    return head.startswith(IGNORE_LINE) and not head[len(IGNORE_LINE) :].split(b"\n")[0].strip()


def ignore_matcher(text: str | None) -> Callable[[str], bool]:
    """The `.fleetignore` at the root of the tree (gitignore syntax) -> does it exclude a path?"""
    if text is None or not text.strip():
        return lambda _path: False
    from pathspec import GitIgnoreSpec  # 20 ms that a fleet without the file need not pay

    try:
        spec = GitIgnoreSpec.from_lines(text.splitlines())
    except ValueError as error:
        raise SourceError(f"{IGNORE_FILE}: {error}; write patterns as in .gitignore") from error
    return spec.match_file


def repository_path(path: str) -> str:
    """The one spelling of a path inside the repository. Raises SourceError: it leads outside."""
    problem = path_problem(path)
    if problem:
        raise SourceError(f"{path!r}: {problem}")
    return posixpath.normpath(path)


def path_problem(path: str) -> str | None:
    """Why a path cannot name a file inside the repository, or None."""
    if not path or path != path.strip() or not path.isprintable():
        return "a path is not empty and has no spaces around it and no control characters"
    if path.startswith(("/", "~")) or path[1:3] in (":\\", ":/"):
        return "an absolute path; write file:///... for a file of the node, or a relative path"
    if "\\" in path:
        return "write / between folders, not \\"
    normal = posixpath.normpath(path)
    if normal == ".." or normal.startswith("../"):
        return "leads out of the repository; move the file into it"
    if normal == "." or normal.split("/")[0] == ".git":
        return "names no file of the repository"
    return None


def subdirectory(path: str | None) -> str:
    """`--path DIR` -> its one spelling; empty for the whole tree. Raises SourceError: outside."""
    return "" if path in (None, "", ".", "./") else repository_path(str(path))


def describe_lfs(path: str) -> str:
    """Why a Git LFS pointer is no model file, and what to do."""
    return (
        f"{path} is a Git LFS pointer and not the model itself; pointers are not followed:"
        " commit the file, or point spec.source at a URL"
    )
