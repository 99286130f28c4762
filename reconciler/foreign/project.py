"""Another project whose documents are read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reconciler.foreign.field import ForeignField


class Project(NamedTuple):
    """`groups` are the API groups of its documents. `tables` have a row for each field that ours do
    not have, by kind; `read` are its kinds that ours do not have and that are read all the same,
    with the parts of spec that each must have; `instead` is what to write in the place of others.
    """

    name: str
    groups: tuple[str, ...]
    tables: Mapping[str, tuple[ForeignField, ...]]
    read: Mapping[str, tuple[str, ...]]
    instead: Mapping[str, str]
