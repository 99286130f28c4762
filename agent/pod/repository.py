"""The fleet's repository at one commit, for models in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from reconciler.source.address import GitCredentials
from reconciler.source.commit import GitCheckout
from reconciler.source.git import GitSource


class Repository:
    """Read on first use, from a copy in `folder` that is then updated to the commit, so that an
    unreachable remote is retried like any download. Raises SourceError."""

    def __init__(self, folder: Path, url: str, revision: str, credentials: GitCredentials) -> None:
        self._source = GitSource(url, cache_dir=folder, ref=revision, credentials=credentials)
        self._checkout: GitCheckout | None = None

    def open(self, path: str) -> BinaryIO:
        """See GitCheckout.open."""
        return self._read().open(path)

    def folder(self, path: str) -> Sequence[str]:
        """See GitCheckout.folder."""
        return self._read().folder(path)

    def _read(self) -> GitCheckout:
        if self._checkout is None:
            self._checkout = self._source.fetch()
        return self._checkout
