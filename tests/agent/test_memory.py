"""What a machine's memory holds: recorded machines for the arithmetic, this one for the reading."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import psutil
import pytest

from agent.machine.machine import Machine
from agent.machine.memory import MachineMemory
from agent.machine.memory_host import host_memory, measured_bytes, programs, resident
from agent.machine.memory_pools import MemorySnapshot, Stated, measured, pool_states
from agent.node.local import LocalAgent
from agent.node.settings import Settings
from agent.process.launch import Phase, ProcessSnapshot
from reconciler.core.observation import ObservedPool
from reconciler.fleet.workload import PoolNeed
from tests.support.memory import GIB, MIB, Nvml, eater, kernel, linux_says, machine, stated
from tests.support.owner import launch
from tests.support.pids import somebody_else
from tests.support.wait import wait_for

NEED = (PoolNeed("host", 2 * GIB, 20 * GIB),)


def memory_of(root: Path, total: int, in_use: int) -> MachineMemory:
    found = MachineMemory(machine(kernel(root, total, in_use)))
    found.follow(stated())
    return found


def running(name: str, *needs: PoolNeed) -> ProcessSnapshot:
    return ProcessSnapshot(
        launch(name, 1, needs=needs), Phase.READY, True, "Ready", "", 0.0, pid=os.getpid()
    )


# Others, from recorded machines.


@pytest.mark.parametrize(
    ("memory", "rules", "others"),
    [
        ("32Gi", {}, 5 * GIB),  # all of it: the seed's arithmetic
        ("29Gi", {}, 2 * GIB),  # three are set aside
        ("8Gi", {}, 0),
        ("64Gi", {}, 5 * GIB),  # stated more than there is
        (None, {"budget": "30Gi"}, 3 * GIB),  # a budget alone leaves the rest aside too
    ],
)
def test_others_count_as_far_as_they_take_of_what_is_stated(
    tmp_path: Path, memory: str | None, rules: dict[str, str], others: int
) -> None:
    found = MachineMemory(machine(kernel(tmp_path, 32 * GIB, 5 * GIB)))
    found.follow(stated(memory, **rules))

    (pool,) = found.read({}).pools

    assert (pool.name, pool.used_by_others_bytes) == ("host", others)


def test_a_mac_and_a_machine_without_a_fleet_have_one_pool(tmp_path: Path) -> None:
    found = MachineMemory(machine(kernel(tmp_path, 32 * GIB, 5 * GIB)))

    before = found.read({}).pools
    found.follow(stated("32Gi", "unified"))
    after = found.read({}).pools

    assert [(p.name, p.total_bytes, p.budget_bytes) for p in before] == [("host", 32 * GIB, None)]
    assert [(p.name, p.used_by_others_bytes) for p in after] == [("unified", 5 * GIB)]


@linux_says
def test_memory_that_cannot_be_read_is_unknown_and_refuses_nothing(tmp_path: Path) -> None:
    found = MachineMemory(machine(tmp_path))
    found.follow(stated())

    (pool,) = found.read({}).pools

    assert pool.used_by_others_bytes is None
    assert found.refusal(launch("chat", 1, needs=NEED), ()) is None
    assert found.budget_lines({}) == (
        "memory: host: 32.0 GiB x 0.67 = 21.4 GiB; what others use of it cannot be read",
    )


def test_budgets_are_said_with_their_arithmetic(tmp_path: Path) -> None:
    found = MachineMemory(machine(kernel(tmp_path, 32 * GIB, int(3.4 * GIB))))
    assert found.budget_lines({}) == (
        "memory: host: no memory is stated for this node, so nothing is refused",
    )

    news = found.follow(stated(reserve="1Gi"))
    again = found.follow(stated(reserve="1Gi"))

    assert (news, again) == (True, False)
    assert found.budget_lines({}) == (
        "memory: host: 32.0 GiB x 0.67 - 1.0 GiB reserve = 20.4 GiB budget,"
        " 3.4 GiB in use by other processes: 17.0 GiB for models",
    )


def test_memory_that_is_stated_and_not_there_is_said(tmp_path: Path) -> None:
    found = MachineMemory(machine(kernel(tmp_path, 24 * GIB, GIB)))
    found.follow(stated("32Gi"))

    assert found.budget_lines({})[1:] == (
        "memory: host: 32.0 GiB are stated and 24.0 GiB are there: models may be started that do"
        " not fit; fleet-agent probe prints what to state",
    )


def test_the_budgets_of_a_machine_are_logged_when_the_fleet_states_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="agent")
    agent = LocalAgent("here", Settings(tmp_path / "state"), changed=lambda: None)
    agent.start()
    try:
        agent.stated(stated("1Gi"))
        agent.stated(stated("1Gi"))
    finally:
        agent.close(stop_children=True)

    said = [r.message for r in caplog.records if r.message.startswith("memory: host: 1.0 GiB")]
    assert len(said) == 1
    assert said[0].startswith("memory: host: 1.0 GiB x 0.67 = 686 MiB budget, ")


def test_a_small_change_of_others_is_no_news(tmp_path: Path) -> None:
    now = [0.0]
    found = MachineMemory(machine(tmp_path), clock=lambda: now[0])
    found.follow(stated())

    said = []
    for in_use in (5 * GIB, 5 * GIB + 300 * MIB, 5 * GIB + 400 * MIB):  # a part in 100: 328 MiB
        kernel(tmp_path, 32 * GIB, in_use)
        said.append(found.read({}).pools[0].used_by_others_bytes)
        now[0] += 10.0

    assert said == [5 * GIB, 5 * GIB, 5 * GIB + 400 * MIB]


def test_the_machine_is_looked_at_every_ten_seconds_and_at_once_when_the_fleet_says_otherwise(
    tmp_path: Path,
) -> None:
    now = [0.0]
    found = MachineMemory(machine(kernel(tmp_path, 32 * GIB, GIB)), clock=lambda: now[0])
    found.follow(stated())
    first = found.read({})

    kernel(tmp_path, 32 * GIB, 5 * GIB)
    now[0] = 9.9
    early = found.read({})
    now[0] = 10.1
    late = found.read({})
    found.follow(stated("31Gi"))
    other = found.read({})

    assert early is first
    assert [look.pools[0].used_by_others_bytes for look in (first, late, other)] == [
        GIB,
        5 * GIB,
        4 * GIB,
    ]


# Devices, as their drivers were recorded.


def device_pools(
    root: Path, nvml: Nvml | None, ours: dict[int, tuple[PoolNeed, ...]]
) -> list[int | None]:
    found = MachineMemory(machine(kernel(root, 64 * GIB, GIB), nvml))
    found.follow(stated("64Gi", "24Gi", {"memory": "24Gi", "uuid": "GPU-b"}))
    return [pool.used_by_others_bytes for pool in found.read(ours).pools[1:]]


def test_what_others_take_of_a_gpu_is_what_is_used_less_what_our_processes_take(
    tmp_path: Path,
) -> None:
    other = os.getpid()
    need = (PoolNeed("device0", 6 * GIB, 20 * GIB),)
    with eater(1) as pid:
        nvml = Nvml(
            ("GPU-a", 24 * GIB, 10 * GIB, {pid: 5 * GIB, other: 4 * GIB}),
            ("GPU-b", 24 * GIB, 2 * GIB, {}),
        )
        found = MachineMemory(machine(kernel(tmp_path, 64 * GIB, GIB), nvml))
        found.follow(stated("64Gi", "24Gi", {"memory": "24Gi", "uuid": "GPU-b"}))

        look = found.read({pid: need})

    _, first, second = look.pools
    assert (first.used_by_others_bytes, second.used_by_others_bytes) == (5 * GIB, 2 * GIB)
    assert first.largest_other.startswith(f"pid {other} (")
    assert first.largest_other.endswith("), 4.0 GiB")
    assert dict(look.measured_of(pid))["device0"] == 5 * GIB


def test_a_gpu_is_found_by_its_uuid_and_else_by_its_place(tmp_path: Path) -> None:
    swapped = Nvml(("GPU-b", 24 * GIB, 2 * GIB, {}), ("GPU-a", 24 * GIB, 10 * GIB, {}))

    assert device_pools(tmp_path, swapped, {}) == [2 * GIB, 2 * GIB]
    assert device_pools(tmp_path, Nvml(("GPU-x", 24 * GIB, 3 * GIB, {})), {}) == [3 * GIB, None]


def test_a_gpu_whose_users_are_not_known_is_unknown(tmp_path: Path) -> None:
    unsized = Nvml(("GPU-a", 24 * GIB, 10 * GIB, {os.getpid(): None}))
    elsewhere = Nvml(("GPU-a", 24 * GIB, 10 * GIB, {2**22 + 1: GIB}))  # the host's pids
    refused = Nvml(("GPU-a", 24 * GIB, 10 * GIB, None))

    for nvml in (unsized, elsewhere, refused, None):
        assert device_pools(tmp_path, nvml, {}) == [None, None]


def test_an_amd_card_is_read_from_the_kernel(tmp_path: Path) -> None:
    files = {
        "sys/class/drm/card0/device/vendor": "0x1002",
        "sys/class/drm/card0/device/uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0",
        "sys/class/drm/card0/device/mem_info_vram_total": str(16 * GIB),
        "sys/class/drm/card0/device/mem_info_vram_used": str(9 * GIB),
        "sys/class/kfd/kfd/topology/nodes/1/gpu_id": "4711",
        "sys/class/kfd/kfd/topology/nodes/1/properties": (
            f"gfx_target_version 110000\nlocation_id {3 << 8}"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    found = MachineMemory(machine(kernel(tmp_path, 64 * GIB, GIB)))
    found.follow(stated("64Gi", "16Gi"))

    with eater(1) as pid:
        unknown = found.read({}).pools[1].used_by_others_bytes
        held = tmp_path / f"sys/class/kfd/kfd/proc/{pid}/vram_4711"
        held.parent.mkdir(parents=True)
        held.write_text(f"{6 * GIB}\n")
        (pool,) = found.now({pid: (PoolNeed("device0", 8 * GIB, 15 * GIB),)})[1:]

    assert unknown is None  # without its compute driver nobody says who uses it
    assert pool.used_by_others_bytes == 3 * GIB


# Before each start.


def test_two_services_that_fit_alone_are_not_both_started(tmp_path: Path) -> None:
    found = memory_of(tmp_path, 32 * GIB, GIB)
    need = PoolNeed("host", 11 * GIB, int(32 * GIB * 0.67))

    alone = found.refusal(launch("b", 1, needs=(need,)), ())
    together = found.refusal(launch("b", 1, needs=(need,)), [running("a", need)])

    assert alone is None
    assert together is not None
    assert together.startswith(
        "needs 11.0 GiB of host memory, 9.4 GiB are free (32.0 GiB x 0.67 = 21.4 GiB budget,"
        " 11.0 GiB taken by default/a, 1.0 GiB in use by other processes);"
        " lower what is asked, or suspend one of them"
    )


def test_weights_that_two_services_share_count_once(tmp_path: Path) -> None:
    found = memory_of(tmp_path, 32 * GIB, GIB)
    need = PoolNeed("host", 11 * GIB, 20 * GIB, (("sha", 10 * GIB),))

    assert found.refusal(launch("b", 1, needs=(need,)), [running("a", need)]) is None


def test_memory_in_use_by_others_is_named_beside_the_budget_of_today(tmp_path: Path) -> None:
    found = memory_of(tmp_path, 32 * GIB, 20 * GIB)

    with somebody_else():
        text = found.refusal(launch("b", 1, needs=NEED), ())

    assert text is not None
    assert text.startswith(
        "needs 2.0 GiB of host memory, 1.4 GiB are free (32.0 GiB x 0.67 = 21.4 GiB budget,"
        " 20.0 GiB in use by other processes);"
        " lower what is asked, or free 573 MiB of what others use there (the largest: pid "
    )


def test_mode_warn_starts_it_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = memory_of(tmp_path, 32 * GIB, 20 * GIB)
    inputs = {"lifecycle": {"memory.mode": "warn"}}

    assert found.refusal(launch("b", 1, needs=NEED, inputs=inputs), ()) is None
    assert "default/b: MemoryOverridden: needs 2.0 GiB of host memory, 1.4 GiB are" in caplog.text


def test_before_the_fleet_is_read_only_our_own_services_count(tmp_path: Path) -> None:
    found = MachineMemory(machine(kernel(tmp_path, 32 * GIB, 31 * GIB)))
    tight = PoolNeed("host", 11 * GIB, 20 * GIB)

    assert found.refusal(launch("b", 1, needs=(tight,)), ()) is None
    assert found.refusal(launch("b", 1, needs=(tight,)), [running("a", tight)]) is not None


def test_what_was_never_estimated_is_not_refused(tmp_path: Path) -> None:
    assert memory_of(tmp_path, GIB, GIB).refusal(launch("b", 1), ()) is None


# This machine.


def test_what_a_process_of_ours_takes_within_its_estimate_is_not_others() -> None:
    with eater(300) as pid:
        needs = {pid: (PoolNeed("host", GIB, 2 * GIB),)}
        tight = {pid: (PoolNeed("host", 100 * MIB, 2 * GIB),)}
        seen = MemorySnapshot.now(Machine(), Stated(), programs(needs))

        def others(ours: dict[int, tuple[PoolNeed, ...]]) -> int:
            (pool,) = pool_states(seen, Stated(), ours)
            assert pool.used_by_others_bytes is not None
            return pool.used_by_others_bytes

        everything, within, beyond = others({}), others(needs), others(tight)

    assert 300 * MIB <= everything - within <= 340 * MIB
    assert 60 * MIB <= everything - beyond <= 100 * MIB  # the rest is beyond its estimate


@pytest.mark.e2e
def test_memory_that_a_foreign_process_eats_is_seen() -> None:
    def rise() -> float:
        before = host_memory()
        with eater(2000):
            after = host_memory()
        assert before is not None
        assert after is not None
        return (after.in_use - before.in_use) / MIB

    # Others work on this machine too, and pages that were just freed are counted as used for a
    # while (up to 300 MiB on two cores, Linux 6.18): once in a quiet moment is enough.
    wait_for(lambda: 1200 <= rise() <= 2800, "a rise of about 2000 MiB")


def test_the_largest_foreign_process_is_named_and_ours_is_not() -> None:
    def is_named() -> bool:
        sizes = (p.info["memory_info"] for p in psutil.process_iter(["memory_info"]))
        largest = max(size.rss for size in sizes if size)
        with eater(largest // MIB + 200) as pid:
            foreign = programs(()).largest_other
            ours = programs((pid,)).largest_other
        assert not ours.startswith(f"pid {pid} (")
        return foreign.lower().startswith(f"pid {pid} (python")  # a Mac calls it Python

    wait_for(is_named, "a moment in which no other process grows larger")


def test_what_a_service_takes_is_measured_with_its_children() -> None:
    with eater(40, 60, 50) as pid:
        needs = {pid: (PoolNeed("unified", GIB, GIB),)}
        seen = MemorySnapshot.now(Machine(), Stated("unified"), programs(needs))
        found = measured(seen, Stated("unified"), needs)

        assert len(seen.programs.of(pid)) == 3

    ((name, size),) = found[pid]
    assert name == "unified"
    assert 150 * MIB <= size <= 220 * MIB


@linux_says
def test_a_mapped_file_is_measured_and_is_not_in_use(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(MIB) * 64)

    before = resident(os.getpid())
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        read = sum(mapped[i] for i in range(0, len(mapped), 4096))
        after, pss = resident(os.getpid()), measured_bytes(os.getpid())

    assert read
    assert before is not None
    assert after is not None
    assert pss is not None
    assert after.total - before.total >= 60 * MIB
    assert after.fixed - before.fixed <= 8 * MIB


def test_a_process_that_is_gone_has_no_figures() -> None:
    assert resident(2**22 + 1) is None
    assert measured_bytes(2**22 + 1) is None
    assert programs((2**22 + 1,)).of(2**22 + 1) == ()


@linux_says
def test_pool_states_hold_without_any_of_this(tmp_path: Path) -> None:
    found = MachineMemory(machine(tmp_path))
    found.follow(stated(None))

    assert found.read({}).pools == (ObservedPool("host", None, None, None),)
