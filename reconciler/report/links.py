"""Where the lines and commits of a repository can be looked at in a browser. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses below the page of a repository, as its forge forms them: `line` has {commit},
    {file} and {line}, `commit` has {commit}. None: there are none. `head` is the commit whose files
    are looked at."""

    line: str | None = None
    commit: str | None = None
    head: str | None = None

    def to_line(self, file: str, line: int, commit: str | None) -> str | None:
        if self.line is None or not commit:
            return None
        return self.line.format(commit=commit, file=uri_path(file), line=line)

    def to_commit(self, commit: str | None) -> str | None:
        return self.commit.format(commit=commit) if self.commit and commit else None


NO_LINKS = Links()


def uri_path(path: str) -> str:
    """A relative URI reference: what it may not hold, and what means something there, as %XX."""
    data = path.encode("utf-8", errors="surrogateescape")
    return "".join(chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in data)


_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")
