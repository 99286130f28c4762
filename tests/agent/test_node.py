"""One node: which it is, what it can start, and what who only looks sees of it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.models.expected import read_noted
from agent.models.revisions import KeptModels
from agent.node.disk import DeclaredModels
from agent.node.follow_options import FollowOptions
from agent.node.local import LocalAgent, timing_of
from agent.node.offer import wanted_models
from agent.node.overrides import overlay_of, overrides_of
from agent.node.recorded import kept_file, needed_digests, only_seen, recorded_node
from agent.node.settings import DownloadSettings, Intervals, Settings
from agent.node.steps import AgentSteps, unknown_node
from agent.node.view import RecordedNode, recorded_instances
from agent.node.which import choose_node, node_of_fleet
from agent.process.events import ProcessTiming
from agent.state.directory import StateDir
from agent.state.suspended import read_suspended
from reconciler.api.errors import StateError, StateInUse, UsageError
from reconciler.api.model import Model
from reconciler.console.value import PortRange
from reconciler.core.observation import DriftKind, Instance
from reconciler.core.plan import Action, Change, Impact
from reconciler.core.prune import Before
from reconciler.core.target import Result
from reconciler.fleet.model_file import ModelFile
from reconciler.loop.desired import Desired
from reconciler.models.scheme import FetchContext
from reconciler.source.directory import DirectorySource
from tests.support.builders import model_file as named
from tests.support.builders import workload
from tests.support.cluster_views import desired
from tests.support.counting_engine import write_engine
from tests.support.fleets import document, load_folder, model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.owner import service as ref
from tests.support.ports import own_port
from tests.support.served_node import ServedNode
from tests.support.wait import wait_for

HOST = platform.node().lower()
REVISION = "0123456789abcdef"
POOL = document("FleetNode", "pool", {"kubernetes": {"cluster": "prod"}})


@pytest.mark.parametrize(
    ("names", "given", "chosen"),
    [
        (["mac"], None, "mac"),  # the only one
        (["mac", "gpu"], "gpu", "gpu"),
        (["mac", HOST], None, HOST),
        (["mac", HOST.partition(".")[0]], None, HOST.partition(".")[0]),
        (["mac", "gpu"], None, "or --node NAME of fleet-agent; it has gpu, mac"),
        (["mac", "gpu"], "pool", "no agent node of that name; it has gpu, mac"),
        ([], None, "; it has no agent node: add a FleetNode"),
    ],
)
def test_a_machine_is_the_node_that_is_said_the_only_one_or_that_of_its_name(
    names: list[str], given: str | None, chosen: str
) -> None:
    files = {f"{name}.yaml": node(name) for name in names} | {"pool.yaml": POOL}
    fleet = desired(files).fleet

    if chosen in names:
        assert choose_node(fleet, given) == chosen
    else:
        with pytest.raises(UsageError) as refused:
            choose_node(fleet, given)
        assert chosen in str(refused.value)


@pytest.mark.parametrize(
    ("files", "before", "says"),
    [
        ({"mac.yaml": node("mac")}, Before(), None),
        ({"gpu.yaml": node("gpu")}, Before(), "no FleetNode mac (it has gpu): held, as it runs"),
        ({}, Before(), "no FleetNode mac: held, as it runs"),
        (
            {},
            Before(revision="0123456789abcdef", nodes=frozenset({"mac"})),
            "0123456789ab declared it",
        ),
        (
            {},
            Before(revision="0123456789abcdef", nodes=frozenset({"gpu"})),
            "a state directory of its own",
        ),
        ({}, Before(nodes=frozenset({"mac"})), "a state directory of its own"),
    ],
)
def test_a_fleet_without_the_node_is_held_and_who_declared_it_is_named(
    files: Mapping[str, str], before: Before, says: str | None
) -> None:
    said = unknown_node(desired(files).fleet, "mac", before)

    assert (said is None) == (says is None)
    assert says is None or says in str(said)


# What would keep the machine from starting `chat`.


@pytest.fixture
def fleet(tmp_path: Path) -> dict[str, str | bytes]:
    return {"node.yaml": node(), "model.yaml": model("tiny", source="tiny.gguf"),
            "tiny.gguf": tiny_llama(tmp_path / "tiny.gguf").read_bytes(),
            "chat.yaml": service("chat", "tiny")}  # fmt: skip


def look(root: Path, want: Desired, **settings: Any) -> RecordedNode:
    programs = {"llama-server": write_engine(root)}
    return recorded_node("mac", replace(Settings(root / "state", programs), **settings))


def model_file(path: Path) -> ModelFile:
    return ModelFile("needless", tiny_llama(path, seed=7).as_uri(), "gguf")


def a_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x" * 10)


@pytest.mark.parametrize(
    ("agent", "prepare", "settings", "reason", "says"),
    [
        ({}, lambda _: None, {}, None, ""),
        ({"hostIP": "192.0.2.1", "expose": "open"}, lambda _: None, {}, "HostIPNotLocal",
         "192.0.2.1 is not an address of this machine"),
        ({}, lambda _: None, {"service_ports": PortRange(3, 2)}, "NoPortLeft",
         "no port between 3 and 2 is left"),
        ({"hostIP": "127.0.0.1", "expose": "key"}, lambda root: a_file(root / "state/api-key"), {},
         "KeyUnusable", "state/api-key"),
        ({}, lambda root: a_file(root / "state/api-key"), {}, None, ""),  # it sends none
        ({}, lambda root: a_file(root / "state/workloads"), {}, "StateUnwritable",
         "workloads: Not a directory; see to that"),
        ({}, lambda root: a_file(StateDir(root / "state").workload_dir(ref("chat"))), {},
         "StateUnwritable", ": Not a directory; see to that"),
        ({}, lambda root: a_file(StateDir(root / "state").workload_dir(ref("base"))), {}, None, ""),
        ({}, lambda root: a_file(root / "state/models"), {}, "StoreUnwritable",
         "models: Not a directory; see to that"),
    ],
    ids=["nothing", "address", "ports", "key", "no key", "state", "folder", "another's folder",
         "store"],
)  # fmt: skip
def test_what_keeps_a_service_from_being_started_is_seen_without_starting_it(
    tmp_path: Path,
    fleet: dict[str, str | bytes],
    agent: Mapping[str, Any],
    prepare: Callable[[Path], None],
    settings: Mapping[str, Any],
    reason: str | None,
    says: str,
) -> None:
    prepare(tmp_path)
    want = desired(fleet | {"node.yaml": node(agent=agent)})

    observed = look(tmp_path, want, **settings).observe(want.assignment.workloads)

    found = observed.targets["node/mac"].obstacles.get(ref("chat"))
    assert (found and found.reason) == reason
    assert says in (found.message if found else "")


def test_a_program_that_is_missing_is_said_once_for_all_that_need_it(
    tmp_path: Path, fleet: dict[str, str | bytes]
) -> None:
    want = desired(fleet | {"base.yaml": service("base", "tiny")})
    recorded = look(tmp_path, want, programs={"llama-server": str(tmp_path / "nowhere")})

    state = recorded.observe(want.assignment.workloads).targets["node/mac"]

    assert list(state.missing) == ["llama-server"]
    assert "nowhere" in state.missing["llama-server"]
    assert state.renders == {}
    workloads = want.assignment.workloads
    assert [recorded.command(workload, workloads) for workload in workloads] == [None, None]
    assert not (tmp_path / "state").exists(), "who looks makes nothing"


def test_who_only_looks_leaves_damaged_files_and_old_ones_where_they_are(
    tmp_path: Path, fleet: dict[str, str | bytes]
) -> None:
    state, want = StateDir.open(tmp_path / "state"), desired(fleet)
    files = (state.ports, kept_file(state), state.root / "versions.json")
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text("{")
    pin = state.models / "pins" / ("a" * 64)
    a_file(pin)
    os.utime(pin, (0, 0))  # long over

    recorded = look(tmp_path, want)
    recorded.disk.follow(DeclaredModels("r", (), keep=1))
    recorded.observe(want.assignment.workloads)

    assert [file.read_text() for file in files] == ["{"] * 3
    assert pin.exists()


def test_a_nodes_models_are_those_of_its_services_that_are_to_run() -> None:
    here, there, idle = (
        workload(name, models=(named(name),), node=node, suspended=name == "idle")
        for name, node in (("here", "mac"), ("there", "gpu"), ("idle", "mac"))
    )

    assert wanted_models("mac", (here, there, idle)) == list(here.models)


@pytest.mark.parametrize(
    ("probe_s", "ready_s", "missed_s"), [(10.0, 10.0, 1.0), (1.5, 1.5, 1.0), (0.5, 0.5, 0.5)]
)
def test_a_process_that_was_missed_is_probed_no_less_often(
    probe_s: float, ready_s: float, missed_s: float
) -> None:
    stated = Settings(Path("state"), intervals=Intervals(probe_s=probe_s), withdraw_s=7.0)

    timing = timing_of(stated)

    assert timing == ProcessTiming(probe_ready_s=ready_s, probe_missed_s=missed_s, withdraw_s=7.0)


def test_downloads_take_what_is_stated_and_else_the_default() -> None:
    stated = DownloadSettings(stated_max_running=5, hf_token_file=Path("token"))

    assert (stated.max_running, stated.token_file) == (5, "token")
    assert (DownloadSettings().max_running, DownloadSettings().token_file) == (2, None)


def test_who_only_looks_sees_what_the_agent_sees(tmp_path: Path) -> None:
    port = own_port()
    files = {"chat.yaml": service("chat", "tiny", endpoint={"port": port})}
    with ServedNode.open(tmp_path, files) as served:
        served.wait_ready()
        agent, settings = served.node.agent, served.node.settings
        workloads = served.board.wanted
        assert workloads is not None

        live = agent.target.observe(workloads)
        recorded = recorded_node("mac", settings)
        seen = recorded.observe(workloads)
        (command,) = [recorded.command(workload, workloads) for workload in workloads]
        ports = (served.state / "ports.json").read_bytes()
        (chat,) = workloads
        assert recorded.command(replace(chat, ref=ref("base"), port=None), workloads)
        assert (served.state / "ports.json").read_bytes() == ports, "a look takes no port"

        assert [_identity(i) for i in seen.instances] == [_identity(i) for i in live.instances]
        ours, theirs = seen.targets["node/mac"], live.targets["node/mac"]
        assert (ours.renders, ours.ports, ours.missing) == (
            theirs.renders,
            theirs.ports,
            theirs.missing,
        )
        assert served.node.overrides() == overrides_of(settings, served.node.overlay.own)
        assert ours.ports_taken == theirs.ports_taken == {}, "its own process has it"
        (running,) = agent.processes.snapshot()
        assert command == running.launch.command
        assert [_identity(i) for i in recorded_instances(agent.state, "mac")] == [
            _identity(i) for i in live.instances
        ]
        assert len(needed_digests(agent.state, agent.store)) == 1
        kept = KeptModels(served.state / "desired/models.json", read_only=True)
        wait_for(lambda: kept.needed() == needed_digests(agent.state, agent.store))
        fleet = load_folder(served.fleet).fleet
        assert fleet is not None
        known = recorded.facts(fleet, fleet.all(Model))
        assert known == agent.facts(fleet, fleet.all(Model))
        assert [facts.architecture for facts in known.values()] == ["llama"]
        served.stop_loop()
        (served.state / "desired/models.json").unlink()
        assert len(needed_digests(agent.state, agent.store)) == 1, "a process runs from it"


def test_who_only_compares_plans_as_the_agent_does_and_knows_its_node_when_the_fleet_is_broken(
    tmp_path: Path,
) -> None:
    files = {"node.yaml": node(hardware={"memory": "1Gi"}), "chat.yaml": service("chat", "tiny")}
    with ServedNode.open(tmp_path, files) as served:
        served.wait_ready()
        settings, source = served.node.settings, DirectorySource(served.fleet)

        store, needless = served.node.agent.store, model_file(tmp_path / "needless.gguf")
        store.ensure(needless, FetchContext())
        wait_for(lambda: store.lookup(needless) is not None)
        store.keep_only([])

        found = only_seen(source, None, settings, [], FollowOptions())
        found.loop.fetch()
        seen = found.loop.compare()
        served.stop_loop()
        assert seen is not None
        (live,) = served.node.agent.target.observe(
            seen.desired.assignment.workloads
        ).targets.values()
        write_fleet(served.fleet, {"node.yaml": "kind: FleetNode"})
        known = only_seen(source, None, settings, [], FollowOptions()).name

    assert (found.name, known) == ("mac", "mac")
    assert (seen.plan.changes, seen.plan.blocked) == ((), ())
    (state,) = seen.observed.targets.values()
    stated = ("host", 2**30, int(2**30 * 0.67))
    for observed in (state, live):
        assert observed.disk is not None
        assert observed.disk.given_up_bytes == (tmp_path / "needless.gguf").stat().st_size
        assert [(p.name, p.total_bytes, p.budget_bytes) for p in observed.pools] == [stated]


def test_what_runs_as_it_should_is_touched_only_where_the_change_asks_for_it(
    tmp_path: Path,
) -> None:
    files, often = {"chat.yaml": service("chat", "tiny")}, Intervals(drift_s=0.05)
    with ServedNode.open(tmp_path, files, intervals=often) as served:
        served.wait_ready()
        served.stop_loop()
        target, processes = served.node.agent.target, served.node.agent.processes
        (workload,) = served.board.wanted or ()
        first = processes.snapshot()[0].pid

        def made(action: Action, reason: str, **more: Any) -> tuple[Result, str]:
            change = Change(action, "node/mac", ref("chat"), reason, None, **more)
            outcome = target.apply(replace(change, desired=workload))
            return outcome.result, outcome.message

        def drifts() -> list[DriftKind]:
            return [d.kind for d in served.node.agent.drift.of(processes.snapshot()[0])]

        ports = (served.state / "ports.json").read_bytes()
        target.observe((workload, replace(workload, ref=ref("base"))))
        assert (served.state / "ports.json").read_bytes() == ports, "a look takes no port"

        after = Impact(after=(ref("base"),), waits=True)
        waits = "waits until default/base, whose model has to come first, has left its port"
        assert made(Action.UNKNOWN, "Unreachable") == (Result.SKIPPED, "")
        assert made(Action.CREATE, "ProcessGone") == (Result.APPLIED, "starts again")
        assert made(Action.REPLACE, "PortChanged", impact=after) == (Result.SKIPPED, waits)
        waits = made(Action.MOVE, "MovedAway", home="node/gpu", awaits="it is not there yet")
        why = "stays until it is ready on node gpu: it is not there yet"
        assert waits == (Result.SKIPPED, why)
        asked = []
        for home in ("gpu", "mac"):
            now = target.observe((replace(workload, node=home),)).targets["node/mac"]
            asked.append([each.home for each in now.successors.values()])
        assert asked == [["node/gpu"], []]
        assert processes.snapshot()[0].pid == first

        far = replace(workload, models=(named("far", source="http://127.0.0.1:1/far.gguf"),))
        update = Change(Action.UPDATE, "node/mac", ref("chat"), "Changed", None, desired=far)

        def expected() -> int:
            return len(read_noted(StateDir(served.state), "node/mac"))

        target.apply(update)
        seen = []
        for wanted in (far, workload):
            target.observe((wanted,))
            seen.append(expected())
        assert seen == [1, 0], "a change that was taken back waits for no model"
        target.apply(update)

        program = tmp_path / "llama-server"
        program.write_text(program.read_text().replace("exec", "exec env OMP_WAIT_POLICY=active"))
        for action, reason, drift in (
            (Action.REPLACE, "RestartedByHand", DriftKind.RESTART),
            (Action.DRIFT, "Drifted", DriftKind.COSMETIC),  # which did not mend it
        ):
            before = processes.snapshot()[0].pid
            assert made(action, reason) == (Result.APPLIED, "starts")
            wait_for(lambda b=before: processes.snapshot()[0].pid not in (b, None))
            wait_for(lambda d=drift: drifts() == [d])
            assert expected() == 0, "nor does who starts without it"

        assert made(Action.MOVE, "MovedAway", home="node/gpu") == (Result.APPLIED, "stopping")

    assert StateDir(tmp_path / "state").holder() is None, "the agent has ended"


def test_a_router_whose_models_change_reads_its_files_again(tmp_path: Path) -> None:
    def hub(**settings: Any) -> dict[str, str]:
        models = [{"name": "tiny", **settings}]
        return {"hub.yaml": service("hub", None, runtime="llamacpp-router", models=models)}

    with ServedNode.open(tmp_path, hub()) as served:
        served.wait_ready()
        (before,) = served.node.agent.processes.snapshot()
        log = served.node.agent.state.log_file(ref("hub"))

        served.write(hub(contextSize=777))
        wait_for(lambda: "--- fleet-reconciler reloads" in log.read_text())

        assert served.node.agent.processes.snapshot()[0].pid == before.pid


def test_who_comes_to_a_state_directory_that_another_has_taken_ends(tmp_path: Path) -> None:
    agent = LocalAgent("mac", Settings(tmp_path / "state"), changed=lambda: None)
    agent.start()
    saved, ended = [], []

    def save() -> None:
        saved.append(len(saved))
        if len(saved) == 1:
            raise StateError("the disk is full")

    steps = AgentSteps(
        *("mac", agent, overlay_of("mac", Settings(tmp_path)), DirectorySource(tmp_path)),
        busy=lambda: "in a rebase",
        save=save,
        end=lambda: ended.append(True),
    ).steps()
    try:
        steps.prepare()
        assert saved == [], "nothing was lost"
        shutil.rmtree(agent.state.root.rename(tmp_path / "gone"))
        with pytest.raises(StateError, match="the disk is full"):
            steps.prepare()
        for _ in range(2):
            steps.prepare()
        assert (saved, ended) == ([0, 1], []), "again, until it is written"

        other = StateDir.open(tmp_path / "other")
        other.lock()
        agent.state.root.rename(tmp_path / "ours")
        other.root.rename(agent.state.root)
        with pytest.raises(StateInUse):
            steps.prepare()
        other.unlock()
    finally:
        agent.close(stop_children=True)

    assert ended == [True]
    assert steps.gate.busy_reason() == "in a rebase"


def test_a_machine_is_the_node_of_the_fleet_that_it_applied_last(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {}) as served:
        served.wait_ready()

    ours, other = DirectorySource(served.fleet), DirectorySource(tmp_path)
    found = [node_of_fleet(served.state, ours), node_of_fleet(served.state, other)]
    assert [*found, node_of_fleet(tmp_path / "nowhere", ours)] == ["mac", None, None]


def _identity(of: Instance) -> tuple[object, ...]:
    return (of.ref, of.target, of.ready, of.reason, of.pid, of.port, of.endpoint, of.inputs_digest,
            of.render_digest, of.models)  # fmt: skip


def test_a_changed_drain_is_noted_and_a_changed_setting_starts_anew(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {"chat.yaml": service("chat", "tiny")}) as served:
        served.wait_ready()
        (before,) = served.node.agent.processes.snapshot()

        served.write({"chat.yaml": service("chat", "tiny", rollout={"drainTimeout": "7s"})})
        wait_for(lambda: served.node.agent.processes.snapshot()[0].launch.drain_timeout_s == 7.0)
        assert served.node.agent.processes.snapshot()[0].pid == before.pid

        served.write({"chat.yaml": service("chat", "tiny", contextSize=777)})
        wait_for(lambda: served.node.agent.processes.snapshot()[0].pid not in (before.pid, None))


def test_a_state_directory_that_was_removed_is_written_again(tmp_path: Path) -> None:
    idle = {"idle.yaml": service("idle", "tiny", suspend=True)}
    with ServedNode.open(tmp_path, {"chat.yaml": service("chat", "tiny")} | idle) as served:
        served.wait_ready()
        (before,) = served.node.agent.processes.snapshot()
        assert read_suspended(StateDir(served.state)) == (ref("idle"),)
        kept = {path.name for path in (served.state / "records").iterdir()}
        history = served.state / "desired/history.json"

        # In one step, as the agent writes into it all the time.
        shutil.rmtree(served.state.rename(tmp_path / "gone"))
        served.wake.pass_now()
        ports = served.state / "ports.json"
        again = [*(served.state / "records" / name for name in kept), history, ports]
        wait_for(lambda: all(path.exists() for path in again))
        wait_for(lambda: read_suspended(StateDir(served.state)) == (ref("idle"),))

        assert served.node.agent.processes.snapshot()[0].pid == before.pid
        assert StateDir(served.state).holder() is not None
