"""Which files of a tree belong to the fleet, and which paths may be read at all. Pure.

All sources use these functions, so that a folder and a git commit of it agree.
"""

from __future__ import annotations

import posixpath

from reconciler.api.errors import SourceError
from reconciler.api.meta import GROUP
from reconciler.source.mark import may_be_ours

IGNORE_FILE = ".fleetignore"
IGNORE_LINE = b"# fleet: ignore"
MAX_FILE_BYTES = 2**20  # of YAML; a source returns one byte more, so that a larger file is noticed
MAX_ALL_BYTES = 2**27  # of all YAML files that mention our group: 100,000 services take 70 MB
LFS_MARK = b"version https://git-lfs.github.com/spec/"

SUFFIXES = (".yaml", ".yml", ".json")  # in any case; JSON is YAML
_BOM = b"\xef\xbb\xbf"


def is_candidate(path: str, subdir: str = "") -> bool:
    """By its name alone: a YAML or JSON file below `subdir` and not in a folder whose name begins
    with a dot."""
    if not (path.endswith(SUFFIXES) or path.lower().endswith(SUFFIXES)):
        return False
    if "/." in f"/{path}" and "/." in f"/{posixpath.dirname(path)}":
        return False
    return not subdir or path.startswith(f"{subdir}/")


def is_lost_behind(path: str, target: str, subdir: str = "") -> bool:
    """True if documents behind a symbolic link at `path` are not read at its target either."""
    if target.startswith("/"):
        return True
    at = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if at == ".." or at.startswith("../"):
        return True
    if at == ".":
        return False
    if is_candidate(path, subdir):
        return not is_candidate(at, subdir)
    return not f"{at}/".startswith(f"{subdir}/" if subdir else "") or "/." in f"/{at}/"


def may_be_folder(path: str) -> bool:
    """By its name alone: the path of a folder that documents may be in."""
    return "." not in posixpath.basename(path) and "/." not in f"/{path}"


def is_fleet_file(data: bytes) -> bool:
    """By its bytes: it may be ours, and its first line does not exclude it."""
    return may_be_ours(data) and not is_excluded(data)


def is_excluded(data: bytes) -> bool:
    """Its first line is `# fleet: ignore`."""
    head = data[:64].removeprefix(_BOM)
    return head.startswith(IGNORE_LINE) and not head[len(IGNORE_LINE) :].split(b"\n")[0].strip()


def check_total(size_bytes: int) -> None:
    """Raises SourceError if the YAML files of one revision are too large in all. The repository may
    still be small: git stores equal content once."""
    if size_bytes > MAX_ALL_BYTES:
        raise SourceError(
            f"its YAML files that mention {GROUP} hold more than {MAX_ALL_BYTES // 2**20} MiB;"
            f" split the fleet, or exclude the rest with {IGNORE_FILE}"
        )


def repository_path(path: str) -> str:
    """The canonical form of a path inside the repository. Raises SourceError if it leads
    outside."""
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
    """`--path DIR` in canonical form; empty for the whole tree. Raises SourceError if it leads
    outside."""
    return "" if path in (None, "", ".", "./") else repository_path(str(path))


def describe_lfs(path: str) -> str:
    """Why a Git LFS pointer is not a model file, and what to do."""
    return (
        f"{path} is a Git LFS pointer and not the model itself; pointers are not followed:"
        " commit the file, or name a URL instead"
    )
