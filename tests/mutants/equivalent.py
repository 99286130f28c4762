"""Faults that nobody could see: the program does the same with them. Each with its reason.

A row that no longer names a fault of its file is refused by tests/project/test_mutants.py.
"""

from __future__ import annotations

_UNREAD = "what an engine of folders takes is made from none of these"

# The file: (the whole line, what stood there and what was planted, as a run prints them): why
# nothing changes.
EQUIVALENT: dict[str, dict[tuple[str, str, str], str]] = {
    "agent/process/rebuilt.py": {
        (
            'origin=Origin(source.file, source.line) if source else Origin("", 1),',
            "1",
            "2",
        ): "a line of no file is shown to nobody",
    },
    "agent/process/unit.py": {
        (
            "return replace(unit, question=unit.question + 1, asking=True, wake_at=wake_at)",
            "1",
            "2",
        ): "any number that was not asked before is as good",
    },
    "reconciler/capacity/pools.py": {
        (
            "for pool, size in zip(devices, (first, *others), strict=True)",
            "True",
            "False",
        ): "a model is split into a part for each device, and no more",
    },
    "reconciler/capacity/smaller.py": {
        (
            "name if _bits(t) > _bits(name) else t for t in (s.cache_type_k, s.cache_type_v)",
            ">",
            ">=",
        ): "of types of as many bits one takes as much as the other",
        (
            "count = largest(1, asked.places - 1, lambda n: fits(replace(asked, places=n)))",
            "-",
            "+",
        ): "as many as were asked for do not fit, nor do more",
    },
    "reconciler/core/node_ports.py": {
        (
            "self._left.pop((target, last.before))",
            "self._left.pop((target, last.before))",
            "pass",
        ): "its owner has it again, who does not wait for itself",
    },
    "reconciler/placement/assignment.py": {
        ("return []", "[]", "None"): "no node and None both mean that it goes nowhere",
    },
    "reconciler/placement/candidate.py": {
        (
            '_PRIORITY = {"critical": 0, "high": 1, "normal": 2, "low": 3, "batch": 4}',
            "4",
            "5",
        ): "it comes last either way",
    },
    "reconciler/source/field_history.py": {
        (
            "if len(step.olds) > 1:",
            ">",
            ">=",
        ): "a step with one parent is then parsed, which says the same later",
    },
    "reconciler/source/ours.py": {
        (
            'is_meant = is_our_kind and {"metadata", "spec"} <= content.keys()',
            "<=",
            "<",
        ): "a kind is there besides",
    },
    "reconciler/source/documents.py": {
        (
            'if text.count("[") + text.count("{") > MAX_OPEN_BRACKETS:',
            ">",
            ">=",
        ): "as many brackets are not more open ones",
        (
            "if not _line(text, place.line) and len(ats) > 1:",
            ">",
            ">=",
        ): "the only place is the last one",
    },
    "reconciler/source/yaml_hints.py": {
        (
            "open_levels = {level for level in open_levels if level <= indent}",
            "<=",
            "<",
        ): "its own level is added by the next line",
    },
    "reconciler/kube/diff/equality.py": {
        (
            "pairs = zip(want, have, strict=False)",
            "False",
            "True",
        ): "they are looked at only where both are as long",
    },
    "reconciler/kube/running/instances.py": {
        ("return ()", "()", "None"): "nothing and None both give way to what is wanted now",
    },
    "reconciler/memory/folders.py": {
        ("context=0,", "0", "1"): "one token is too few to be offered less of, as none is",
        ("slots=1,", "1", "2"): _UNREAD,
        ("u_batch=0,", "0", "1"): _UNREAD,
        ("flash_attention=False,", "False", "True"): _UNREAD,
        ("kv_unified=True,", "True", "False"): _UNREAD,
    },
}
