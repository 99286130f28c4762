"""Writes that may fail, and come again with the next pass."""

from __future__ import annotations

import logging
from collections.abc import Callable

from reconciler.api.errors import ReconcilerError

_log = logging.getLogger(__name__)


class Attempts:
    """Tries what is written to each cluster. A failure is logged once, until another one comes or
    the write succeeds."""

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}  # cluster -> the last one

    def attempt(self, cluster: str, write: Callable[[], None]) -> None:
        try:
            write()
        except ReconcilerError as error:
            if self._errors.get(cluster) != str(error):
                _log.warning("%s", error)
            self._errors[cluster] = str(error)
        else:
            self._errors.pop(cluster, None)
