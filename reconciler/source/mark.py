"""Tell our documents, and those meant to be ours, from all other YAML. Pure.

A repository is full of other YAML: it is recognized by its bytes, and never parsed.
"""

from __future__ import annotations

import codecs
import re

from reconciler.api.kinds import KINDS
from reconciler.api.meta import GROUP
from reconciler.foreign_kinds import READ
from reconciler.source.kin import KIN_MARKS

GROUP_MARK = f"{GROUP}/".encode()

_WIDE_MARKS = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
_NAMES = tuple(kind.encode() for kind in KINDS)
_KIND = re.compile(rb"""kind["']?[ \t]*:[ \t]*["']?(?:%s)(?![-\w.])""" % b"|".join(_NAMES))
_VERSION = re.compile(rb"""apiVersion["']?[ \t]*:[ \t]*["']?([^\s"',}#]+)""")
_NO_GROUP = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
_PROJECT = GROUP.split(".")[1]  # the one part of it that no one else uses


def may_be_ours(data: bytes) -> bool:
    """By its bytes: whether it mentions our group or one of kin, or one of our kinds under nearly
    our group or none at all. Kinds of the same names in other groups are not ours."""
    if GROUP_MARK in data or any(mark in data for mark in KIN_MARKS) or is_wide_and_ours(data):
        return True
    if not any(name in data for name in _NAMES) or not _KIND.search(data):
        return False
    versions = set(_VERSION.findall(data))
    return not versions or any(is_meant_as_ours(v.decode(errors="replace")) for v in versions)


def has_kin_document(data: bytes) -> bool:
    """True if the bytes name a group of kin and a kind of theirs that is read."""
    return any(
        kind.encode() in data and any(f"{group}/".encode() in data for group in project.groups)
        for kind, project in READ.items()
    )


def is_wide(data: bytes) -> bool:
    """Whether it is text of 2 or 4 bytes a letter, as some editors and shells write."""
    return data.startswith(_WIDE_MARKS) or b"\0" in data[:4]


def is_wide_and_ours(data: bytes) -> bool:
    """Whether it is such text, and mentions our group."""
    return is_wide(data) and GROUP_MARK in data.replace(b"\0", b"")


def is_meant_as_ours(version: str) -> bool:
    """Whether the author of this apiVersion, for one of our kinds, meant our group."""
    return has_nearly_our_group(version) or _NO_GROUP.fullmatch(version) is not None


def has_nearly_our_group(version: str) -> bool:
    """Whether it is nearly our group: misspelt, without the version, or in another domain."""
    group = version.partition("/")[0].lower()
    labels, right = group.split("."), GROUP.split(".")
    return _PROJECT in group or (
        len(labels) == len(right) and all(map(_is_one_edit, labels, right))
    )


def _is_one_edit(wrong: str, right: str) -> bool:
    """Whether at most one letter was added, removed or changed, or two were swapped."""
    start = 0
    while start < min(len(wrong), len(right)) and wrong[start] == right[start]:
        start += 1
    wrong, right = wrong[start:], right[start:]
    while wrong and right and wrong[-1] == right[-1]:
        wrong, right = wrong[:-1], right[:-1]
    return max(len(wrong), len(right)) <= 1 or (len(wrong) == 2 and wrong == right[::-1])
