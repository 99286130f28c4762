"""What a plan says of downloads that the disk of a node has no room for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.observation import Instance, Observation, ObservedDisk
from reconciler.core.plan import DiskImpact, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from tests.support.builders import (
    GIB,
    NODE,
    FixedCauses,
    instance,
    model_file,
    need,
    observed,
    workload,
)

MIB = 2**20
_EMPTY = ObservedDisk("/models", 200 * MIB, 150 * MIB, 10 * MIB)


def plan(wanted: list[Workload], disk: ObservedDisk | None, *live: Instance, **state: Any) -> Plan:
    seen = observed(*live, disk=disk, **state)
    return make_plan("rev", wanted, (), seen, Policy(), FixedCauses())


def file(name: str, mib: int | None, **overrides: Any) -> ModelFile:
    size = None if mib is None else mib * MIB
    return model_file(name, sha256=name * 32, size_bytes=size, **overrides)


def service(name: str, *models: ModelFile) -> Workload:
    return workload(name, models=models)


def disk(arrived: dict[str, int] | None = None, **changed: int) -> ObservedDisk:
    """In MiB; `arrived` by the name of the model."""
    there = {name * 32: mib * MIB for name, mib in (arrived or {}).items()}
    values = {"free_bytes": 150, "keep_bytes": 10} | changed
    return ObservedDisk(
        "/models", 200 * MIB, **{n: v * MIB for n, v in values.items()}, arrived=there
    )


def waiting(of: Workload) -> Instance:
    return instance(of.ref.name, of, ready=False, reason="Downloading", render_digest=None)


TWO = [service("a", file("aa", 94)), service("b", file("bb", 94))]


@pytest.mark.parametrize(
    ("wanted", "seen", "created", "refused"),
    [
        (TWO, disk(), "a", "b"),
        (TWO, disk(free_bytes=198), "a b", ""),
        (TWO, disk(free_bytes=197), "a", "b"),
        (TWO, disk(free_bytes=103), "", "a b"),
        (TWO, None, "a b", ""),
        (TWO, disk({"bb": 1}), "b", "a"),
        (TWO, disk({"aa": 70, "bb": 70}, free_bytes=10), "a", "b"),
        (TWO, disk(free_bytes=90, given_up_bytes=14), "a", "b"),
        ([service("a", file("aa", 94)), service("b", file("aa", 94))], disk(), "a b", ""),
        ([service("a", file("aa", 94), file("bb", 94))], disk(), "", "a"),
        ([service("a", file("aa", None)), service("b", file("bb", 140))], disk(), "a b", ""),
        (
            [service("a", file("aa", None)), service("b", file("bb", 140))],
            disk({"aa": 1}),
            "a b",
            "",
        ),
        ([service("a", file("aa", 94, packed_bytes=47 * MIB))], disk(), "", "a"),
        ([workload("a", models=(file("aa", 94),), suspended=True), TWO[1]], disk(), "b", ""),
    ],
    ids=[
        "room for one of two",
        "room for both",
        "a MiB short",
        "room for none",
        "an unknown file system refuses nothing",
        "who has begun comes first",
        "what half arrived of one makes room for the other",
        "what nothing needs makes room",
        "a model that two services share is there once",
        "all models of a service, or none",
        "an unknown size refuses nothing",
        "what is there of an unknown size is taken",
        "a model lies beside what it is unpacked from",
        "who is suspended reserves nothing",
    ],
)
def test_what_fits_the_disk_is_fetched_and_nothing_else(
    wanted: list[Workload], seen: ObservedDisk | None, created: str, refused: str
) -> None:
    made = plan(wanted, seen)

    assert " ".join(sorted(change.ref.name for change in made.changes)) == created
    assert " ".join(item.ref.name for item in made.blocked) == refused
    assert {item.reason for item in made.blocked} <= {"DiskFull"}


def test_a_refusal_has_the_arithmetic_and_who_holds_the_room() -> None:
    made = plan(
        [*TWO, service("c", file("cc", 50))], disk({"bb": 20}, free_bytes=100, given_up_bytes=1)
    )

    messages = {item.ref.name: item.message for item in made.blocked}
    assert messages["a"] == (
        "needs 94.0 MiB of the disk of /models, which has room for 111 MiB, with 1.0 MiB that"
        " nothing needs given up (10.0 MiB more stay free); 94.0 MiB of that are reserved for"
        " default/b, 17.0 MiB are left; free 77.0 MiB there"
    )
    assert messages["c"].endswith("free 33.0 MiB there")
    (b,) = made.changes
    assert b.impact.disk == DiskImpact("/models", 111 * MIB, 17 * MIB)


def test_a_refusal_reads_the_same_while_another_download_arrives() -> None:
    passes = [plan(TWO, disk({"aa": n}, free_bytes=150 - n), waiting(TWO[0])) for n in (1, 50, 93)]

    assert len({made.blocked for made in passes}) == 1


def test_who_frees_what_a_refusal_says_has_freed_enough() -> None:
    want = [service("a", model_file("aa", size_bytes=94 * MIB + 1))]
    short = plan(want, disk(free_bytes=100)).blocked[0].message
    assert short.endswith("free 4.1 MiB there")

    freed = ObservedDisk("/models", 200 * MIB, 100 * MIB + int(4.1 * MIB), 10 * MIB)

    assert plan(want, freed).blocked == ()


def test_what_is_given_up_is_said_by_who_needs_its_room() -> None:
    made = plan(TWO, disk({"aa": 70, "bb": 70}, free_bytes=10))

    assert "removes 24.0 MiB of models and unfinished downloads" in made.changes[0].message
    assert "(70.0 MiB of it are there)" in made.blocked[0].message


@pytest.mark.parametrize(
    ("free", "given_up", "arrived", "sizes", "removed"),
    [
        (150, 900, 0, (100,), [0]),
        (110, 900, 0, (100,), [0]),
        (109, 900, 0, (100,), [1]),
        (50, 900, 0, (100,), [60]),
        (5, 900, 0, (100,), [100]),  # less is free than is to stay so
        (50, 900, 70, (100,), [0]),  # of its own
        (50, 900, 0, (100, 30), [60, 30]),
        (150, 900, 0, (100, 50), [0, 10]),
    ],
)
def test_what_is_given_up_for_each_is_what_is_not_free_to_the_byte(
    free: int, given_up: int, arrived: int, sizes: tuple[int, ...], removed: list[int]
) -> None:
    files = [model_file(f"m{n}", sha256=f"a{n}" * 32, size_bytes=s) for n, s in enumerate(sizes)]
    there = {"a0" * 32: arrived} if arrived else {}
    seen = ObservedDisk("/models", 10**6, free, 10, there, given_up)

    made = plan([service(f"s{n}", each) for n, each in enumerate(files)], seen)

    said = [f"removes {n} B of models and unfinished downloads that make room" for n in removed]
    assert [change.message for change in made.changes] == [
        text if n else "" for n, text in zip(removed, said, strict=True)
    ]


def test_a_download_under_way_keeps_its_room_and_is_refused_where_that_is_gone() -> None:
    wanted = [TWO[0], TWO[1]]

    kept = plan(wanted, disk({"bb": 30}), waiting(TWO[1]))
    gone = plan(wanted, disk({"bb": 30}, free_bytes=10), waiting(TWO[1]))

    assert ([b.ref.name for b in kept.blocked], kept.unchanged) == (["a"], {NODE: 1})
    assert ([b.ref.name for b in gone.blocked], gone.unchanged) == (["b", "a"], {NODE: 0})


@pytest.mark.parametrize(
    ("cached", "refused"), [(frozenset[str](), ["a"]), (frozenset({"aa" * 32}), [])]
)
def test_who_waits_for_its_model_is_planned_again_until_that_is_there(
    cached: frozenset[str], refused: list[str]
) -> None:
    """A header says meanwhile how large it is. Then its agent starts it, or says why not."""
    waits, other = (
        workload(name, models=(file(name * 2, 94),), needs=need(8 * GIB)) for name in "ab"
    )

    unsized, runs = replace(waiting(waits), needs=()), instance("b", other, pid=7)

    made = plan([waits, other], disk(), unsized, runs, cached=cached)

    assert [b.ref.name for b in made.blocked if b.reason == "MemoryFits"] == refused


@pytest.mark.parametrize(
    ("state", "created"),
    [
        ({"ready": False}, []),
        ({"ready": True}, ["b"]),
        ({"ready": False, "pid": 7}, ["b"]),
    ],
    ids=["waits", "is ready", "is starting"],
)
def test_a_model_that_is_gone_has_room_only_for_who_waits_for_it(
    state: dict[str, Any], created: list[str]
) -> None:
    made = plan(TWO, disk(), instance("a", TWO[0], **state))

    assert [change.ref.name for change in made.changes] == created


def test_a_model_that_is_replaced_keeps_its_old_one_running_while_there_is_no_room() -> None:
    old = service("a", file("cc", 10))

    made = plan([TWO[0]], disk(free_bytes=20), instance("a", old, pid=7))

    assert [(b.reason, b.holds) for b in made.blocked] == [("DiskFull", (old.ref,))]


def test_pods_have_volumes_of_their_own() -> None:
    want = workload("a", models=(file("aa", 94),), cluster="prod", node="pool")
    seen = Observation({"cluster/prod": observed(disk=disk(free_bytes=1)).targets[NODE]}, ())

    assert make_plan("rev", [want], (), seen, Policy(), FixedCauses()).blocked == ()


names = st.sampled_from(["aa", "bb", "cc", "dd", "ee"])
sizes = st.dictionaries(names, st.one_of(st.none(), st.integers(1, 100)), min_size=5)
services = st.lists(st.lists(names, min_size=1, max_size=2, unique=True), max_size=6)
arrivals = st.dictionaries(names, st.integers(1, 120), max_size=3)


@given(sizes, services, arrivals, st.integers(0, 300), st.integers(0, 50), st.integers(0, 50))
def test_what_is_admitted_fits_and_what_is_refused_would_not(
    known: dict[str, int | None],
    groups: list[list[str]],
    arrived: dict[str, int],
    free: int,
    keep: int,
    spare: int,
) -> None:
    wanted = [
        service(f"s{n}", *(file(name, known.get(name)) for name in group))
        for n, group in enumerate(groups)
    ]
    seen = disk(arrived, free_bytes=free, keep_bytes=keep, given_up_bytes=spare)

    made = plan(wanted, seen)

    def taken(refs: set[str]) -> int:
        models = {name for n, group in enumerate(groups) if f"s{n}" in refs for name in group}
        return sum(max(known.get(name) or 0, arrived.get(name, 0)) for name in models)

    room = free - keep + spare + sum(arrived.values())
    admitted = {change.ref.name for change in made.changes}
    assert taken(admitted) <= max(room, 0)
    for item in made.blocked:
        assert taken({item.ref.name, *admitted}) > room
    assert len(admitted) + len(made.blocked) == len(groups)
