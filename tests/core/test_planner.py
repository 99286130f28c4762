"""What a plan decides, pair by pair."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import (
    Drift,
    DriftKind,
    Instance,
    Location,
    Observation,
    ObservedPool,
    Obstacle,
    Pending,
    PortHolder,
    TargetState,
    starts_again,
)
from reconciler.core.plan import Action, Blocked, Change, ObjectName, Plan, Restart, standing
from reconciler.core.planner import Policy, make_plan
from reconciler.core.prune import PruneLimits, SinceApplied, removal_token
from reconciler.fleet.workload import Workload
from reconciler.report.plan_text import plan_text
from tests.support.builders import (
    GIB,
    NODE,
    FixedCauses,
    instance,
    model_file,
    need,
    observed,
    ref,
    workload,
)


def plan(
    desired: list[Workload],
    seen: Observation,
    blocked: Any = (),
    *,
    drift_enforced: bool = True,
    **limits: Any,
) -> Plan:
    policy = Policy(drift_enforced, PruneLimits(**limits))
    return make_plan("rev", desired, blocked, seen, policy, FixedCauses())


def actions(made: Plan) -> dict[str, str]:
    return {change.ref.name: str(change.action) for change in made.changes}


def test_who_is_refused_takes_nothing_from_who_comes_after() -> None:
    wanted = [
        workload(name, needs=need(size * GIB)) for name, size in (("a", 6), ("b", 6), ("c", 4))
    ]

    made = plan(wanted, observed())

    assert actions(made) == {"a": "create", "c": "create"}
    assert [(item.ref.name, item.reason) for item in made.blocked] == [("b", "MemoryFits")]


def test_what_was_refused_for_its_memory_stays_so_while_what_it_takes_is_not_known() -> None:
    refused = {ref("chat"): "needs 9 GiB"}
    unknown, sized = workload("chat"), workload("chat", needs=need(1))

    (held,) = plan([unknown], observed(refused=refused)).blocked
    tried = plan([sized], observed(refused=refused))

    assert (held.reason, held.message, held.holds) == ("MemoryFits", "needs 9 GiB", (ref("chat"),))
    assert actions(tried) == {"chat": "create"}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (None, "on the node, `fleet-agent restart default/chat` starts it"),
        ("", "`fleet-agent restart default/chat` starts it"),
        (" --state-dir /x", "`fleet-agent restart default/chat --state-dir /x` starts it"),
    ],
)
def test_who_stopped_a_service_is_told_what_starts_it(option: str | None, said: str) -> None:
    assert starts_again(ref("chat"), TargetState(NODE, True, state_option=option)) == said


def test_a_declared_service_that_does_not_run_is_created() -> None:
    made = plan([workload("chat")], observed())

    assert actions(made) == {"chat": "create"}
    assert made.changes[0].reason == "Added"
    assert made.changes[0].source is not None
    assert made.changes[0].source.line == 1
    assert made.exit_code == 2


def test_a_service_that_runs_as_declared_is_counted_and_not_listed() -> None:
    made = plan([workload("chat")], observed(instance("chat")))

    assert made.changes == ()
    assert made.unchanged == {NODE: 1}
    assert made.exit_code == 0


def test_nothing_is_asked_about_the_history_of_a_service_that_stays_as_it_is() -> None:
    class _Unasked(FixedCauses):
        def where(self, ref: ObjectRef, field: str = "") -> Location | None:
            raise AssertionError(f"asked about {ref}: that may read the history of a repository")

    made = make_plan(
        "rev", [workload("chat")], (), observed(instance("chat")), Policy(), _Unasked()
    )

    assert made.unchanged == {NODE: 1}


def test_a_service_is_counted_by_its_own_line_else_by_the_gravest_of_its_objects() -> None:
    def line(action: Action, *, is_own: bool) -> Change:
        name = None if is_own else ObjectName("apps/v1", "Deployment", "default", str(action))
        return Change(action, "cluster/prod", ref(), "Changed", None, object=name)

    update, deferred = line(Action.UPDATE, is_own=True), line(Action.DEFERRED, is_own=True)
    objects = [line(Action.CREATE, is_own=False), line(Action.DELETE, is_own=False)]

    assert list(standing([update, *objects]).values()) == [Action.UPDATE]
    assert list(standing([deferred, *objects]).values()) == [Action.DELETE]
    assert list(standing([deferred]).values()) == [Action.DEFERRED]


def test_what_objects_need_joins_the_plan_and_counts_again_for_their_targets() -> None:
    services = plan([workload("chat")], observed(instance("chat")))
    one = Blocked(ref(), "ObjectName", "", None, NODE, (ref(),))

    joined = services.joined([], [one], {"cluster/prod": 2})

    assert (joined.blocked, joined.unchanged) == ((one,), {"cluster/prod": 2, NODE: 1})
    assert joined.joined([], unchanged={NODE: 5}).unchanged == {"cluster/prod": 2, NODE: 5}


def test_a_stranger_beside_a_service_is_in_its_way_while_that_lives_and_when_it_is_gone() -> None:
    foreign = Drift(DriftKind.FOREIGN, "pid 7 listens on our port", 1.0)
    lives = observed(instance("chat", pid=71, drifts=(foreign,)))
    holder = PortHolder("port 9 is taken by pid 7 (nginx): end it", 7, "nginx")
    gone = observed(instance("chat", port=9), ports_taken={9: holder})

    (beside,), (instead,) = (plan([workload("chat")], seen).blocked for seen in (lives, gone))

    assert (beside.reason, beside.message) == ("PortInUse", "pid 7 listens on our port")
    assert (instead.reason, instead.message) == ("PortInUse", holder.message)


def test_a_changed_setting_replaces_and_names_the_field_and_its_line() -> None:
    want = workload("chat", settings={"contextSize": 16384})

    made = plan([want], observed(instance("chat")))

    (change,) = made.changes
    assert change.action is Action.REPLACE
    (field,) = change.fields
    assert (field.path, field.before, field.after, field.forces_restart) == (
        "contextSize",
        8192,
        16384,
        True,
    )
    assert change.source is not None
    assert change.source.line == 7
    assert (change.impact.downtime_seconds, change.impact.downtime_basis) == (2.0, "measured")


def test_another_runtime_ends_the_process_of_the_one_before() -> None:
    want = workload("chat", runtime="vllm")

    made = plan([want], observed(instance("chat", of=workload("chat", runtime="llama-server"))))

    assert actions(made) == {"chat": "replace"}
    assert "runtime" in [field.path for field in made.changes[0].fields]


def test_a_change_that_only_the_agent_acts_on_restarts_nothing() -> None:
    want = workload("chat", lifecycle={"rollout.drainTimeout": 5.0})

    made = plan([want], observed(instance("chat")))

    (change,) = made.changes
    assert (change.action, change.impact.restart) == (Action.UPDATE, "none")
    assert [f.forces_restart for f in change.fields] == [False]


def test_a_change_that_renders_the_same_command_restarts_nothing() -> None:
    pinned = workload("chat", models=(model_file(sha256="ab" * 32),))
    before = instance("chat", of=workload("chat", models=(model_file(sha256=None),)))

    made = plan([pinned], observed(before, renders={ref("chat"): "render"}))

    (change,) = made.changes
    assert (change.action, change.impact.restart) == (Action.UPDATE, "none")
    assert [(f.path, f.forces_restart) for f in change.fields] == [("model.gemma.sha256", False)]


def test_a_changed_model_says_so_and_counts_its_download() -> None:
    want = workload("chat", models=(model_file(source="https://x.test/b.gguf", sha256="cd" * 32),))

    made = plan([want], observed(instance("chat")))

    (change,) = made.changes
    assert change.reason == "ModelChanged"
    assert change.impact.download_bytes == 1000
    assert {f.path for f in change.fields} == {"model.gemma.source", "model.gemma.sha256"}


def test_a_model_that_is_on_the_node_is_not_downloaded() -> None:
    made = plan([workload("chat")], observed(cached=frozenset({"ab" * 32})))

    assert made.changes[0].impact.download_bytes == 0


def test_a_model_that_several_services_need_is_downloaded_once_on_each_node() -> None:
    twice = (model_file("a"), model_file("b"))  # one file under two names
    wanted = [workload("one", models=twice), workload("two"), workload("far", node="other")]
    both = observed()
    both = replace(both, targets=both.targets | {"node/other": TargetState("node/other", True)})

    made = plan(wanted, both)

    sizes = {c.ref.name: c.impact.download_bytes for c in made.changes}
    assert sizes == {"far": 1000, "one": 1000, "two": 0}


def test_a_removed_service_cites_its_last_line_and_the_removing_commit() -> None:
    made = plan([], observed(instance("chat")))

    (change,) = made.changes
    assert (change.action, change.reason) == (Action.DELETE, "Removed")
    assert change.source is not None
    assert (change.source.file, change.source.commit) == ("services/chat.yaml", "c" * 40)


def test_a_service_that_goes_already_says_what_it_waits_for() -> None:
    waits = "it is being deleted and waits for x/backup"

    (change,) = plan([], observed(instance("chat", reason="Terminating", message=waits))).changes

    assert change.message == f"no longer declared; {waits}"


def test_a_service_placed_on_another_node_moves() -> None:
    made = plan([workload("chat", node="other")], observed(instance("chat")))

    (change,) = made.changes
    assert (change.action, change.message) == (Action.MOVE, "from node/mac to node/other")


def test_a_suspended_service_stops_and_is_no_guarded_removal() -> None:
    names = [f"s{i}" for i in range(6)]

    made = plan(
        [workload(n, suspended=True) for n in names], observed(*(instance(n) for n in names))
    )

    assert {c.reason for c in made.changes} == {"Suspended"}
    assert len(made.changes) == 6
    assert made.blocked == ()


def test_an_unreachable_target_gives_unknown_and_never_create_or_delete() -> None:
    seen = Observation({NODE: TargetState(NODE, reachable=False, message="no answer")}, ())

    made = plan([workload("chat"), workload("code")], seen)

    assert {c.action for c in made.changes} == {Action.UNKNOWN}
    assert made.exit_code == 3


def test_a_blocked_service_stays_as_it_runs() -> None:
    hold = Blocked(ref("chat"), "MemoryFits", "too large", None, None, (ref("chat"),))
    want = workload("chat", settings={"contextSize": 16384})

    made = plan([want], observed(instance("chat")), blocked=[hold])

    assert made.changes == ()
    assert made.unchanged == {NODE: 1}
    assert made.exit_code == 3


def test_a_missing_engine_blocks_by_observation_with_the_reason() -> None:
    seen = observed(missing={"llama-server": "install llama.cpp"})

    made = plan([workload("chat")], seen)

    assert [(b.reason, b.message) for b in made.blocked] == [("EngineMissing", "install llama.cpp")]
    assert made.changes == ()


_AWAY = Obstacle("HostIPNotLocal", "192.0.2.1 is not here")
_BEFORE = instance("chat", workload("chat", settings={"contextSize": 1}), pid=7)


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        (None, ""),
        (_BEFORE, "; left as it is"),
        (replace(instance("chat"), gone=True, pid=None, ready=False), ""),
        (replace(instance("chat"), pid=None, ready=False), ""),  # tried again and again
    ],
)
def test_nothing_is_stopped_or_said_to_start_where_a_start_would_fail(
    runs: Instance | None, kept: str
) -> None:
    seen = observed(*filter(None, [runs]), obstacles={ref("chat"): _AWAY})

    made = plan([workload("chat")], seen)

    assert [(b.reason, b.message) for b in made.blocked] == [
        ("HostIPNotLocal", f"192.0.2.1 is not here{kept}")
    ]
    assert made.changes == ()


@pytest.mark.parametrize("want", [workload("chat"), workload("chat", suspended=True), None])
def test_what_keeps_a_service_from_starting_keeps_nothing_that_runs(want: Workload | None) -> None:
    seen = observed(instance("chat"), obstacles={ref("chat"): _AWAY})

    made = plan([want] if want else [], seen)

    assert made.blocked == ()


def test_a_render_only_difference_is_deferred_and_changes_no_exit_code() -> None:
    made = plan([workload("chat")], observed(instance("chat"), renders={ref("chat"): "newer"}))

    assert actions(made) == {"chat": "deferred"}
    assert made.exit_code == 0


def test_a_render_only_difference_restarts_at_once_where_the_service_asks_for_it() -> None:
    want = workload("chat", lifecycle={"rollout.onUpgrade": "restart"})
    have = instance("chat", of=want)

    made = plan([want], observed(have, renders={ref("chat"): "newer"}))

    assert actions(made) == {"chat": "replace"}


@pytest.mark.parametrize("enforced", [True, False])
def test_a_lost_process_is_started_again_whatever_the_policy(enforced: bool) -> None:
    made = plan([workload("chat")], observed(instance("chat", gone=True)), drift_enforced=enforced)

    assert [(c.action, c.reason) for c in made.changes] == [(Action.DRIFT, "ProcessGone")]


@pytest.mark.parametrize("policy", ["enforced", "held", "reported"])
@pytest.mark.parametrize(
    ("have", "expected"),
    [
        ({"pid": 7, "port": 1}, (Action.UPDATE, Restart.NONE)),
        ({"port": 1, "ready": False}, (Action.DRIFT, Restart.RESTART)),
        ({"ready": False, "reason": "Downloading"}, None),  # it comes for the first time
    ],
)
def test_a_model_that_is_gone_from_the_disk_is_fetched_again_whatever_the_policy(
    policy: str, have: dict[str, Any], expected: tuple[Action, Restart] | None
) -> None:
    model = model_file("phi", sha256="ab" * 32, size_bytes=GIB)
    want = workload("chat", models=(model,), lifecycle={"hold": "true"} if policy == "held" else {})

    seen = observed(instance("chat", of=want, **have))
    made = plan([want], seen, drift_enforced=policy != "reported")
    whole = plan([want], observed(instance("chat", of=want, **have), cached={"ab" * 32}))

    planned = [(c.reason, c.action, c.impact.restart) for c in made.changes]
    assert planned == ([("ModelGone", *expected)] if expected else [])
    assert [c.impact.download_bytes for c in made.changes] == [GIB] * len(planned)
    assert whole.changes == ()


@pytest.mark.parametrize("reason", ["ModelCorrupt", "ModelUnavailable", "DownloadFailed"])
@pytest.mark.parametrize("waits_for", ["as it runs", "what is declared", "what was declared"])
@pytest.mark.parametrize("pid", [7, None])
def test_a_service_is_blocked_while_its_node_refuses_the_model_that_is_declared(
    reason: str, waits_for: str, pid: int | None
) -> None:
    want = workload("chat", models=(model_file(size_bytes=GIB),))
    before = workload("chat", models=(model_file(size_bytes=GIB),), settings={"contextSize": 4096})
    of, digest = {
        "as it runs": (want, None),
        "what is declared": (before, want.inputs_digest),
        "what was declared": (want, before.inputs_digest),
    }[waits_for]
    pending = Pending(reason, "other bytes", inputs_digest=digest)
    have = instance("chat", of=of, pending=pending, pid=pid, ready=pid is not None, port=8080)

    made = plan([want], observed(have, cached={"ab" * 32}))

    is_refused = reason != "DownloadFailed" and waits_for != "what was declared"
    left = "; left as it is" if pid else ""
    expected = [(reason, f"other bytes{left}")] if is_refused else []
    assert [(b.reason, b.message) for b in made.blocked] == expected
    assert not (made.changes and is_refused)


def test_removals_beyond_the_limits_wait_for_exactly_their_token() -> None:
    have = [instance(f"s{i}") for i in range(6)]
    token = removal_token([i.ref.label for i in have])

    guarded = plan([], observed(*have))
    released = plan([], observed(*have), confirmed=frozenset({token}))
    others = plan([], observed(*have[:5]), confirmed=frozenset({token}))

    assert [b.token for b in guarded.blocked] == [token]
    assert token in guarded.blocked[0].message
    assert guarded.changes == ()
    assert len(released.changes) == 6
    assert others.changes == ()


def test_removals_on_several_nodes_are_asked_for_at_once_and_on_no_single_one() -> None:
    there = [workload(name, node="mac" if name in "ab" else "mini") for name in "abcd"]
    state = {f"node/{n}": TargetState(f"node/{n}", reachable=True) for n in ("mac", "mini")}
    seen = Observation(state, tuple(instance(w.ref.name, of=w) for w in there))

    (asked,) = plan([], seen).blocked

    assert asked.target is None
    assert [r.name for r in asked.holds] == ["a", "b", "c", "d"]
    assert asked.message.startswith("4 of 4 services of this fleet would stop; the limits are ")


def test_removing_the_last_service_is_obeyed() -> None:
    made = plan([], observed(instance("chat")))

    assert actions(made) == {"chat": "delete"}
    assert made.blocked == ()


def test_three_of_four_may_go_but_neither_four_of_five_nor_all_of_two() -> None:
    three = plan([workload("s3")], observed(*(instance(f"s{i}") for i in range(4))))
    four = plan([workload("s4")], observed(*(instance(f"s{i}") for i in range(5))))
    last = plan([], observed(instance("s0")))
    both = plan([], observed(instance("s0"), instance("s1")))
    (question,) = both.blocked
    assert question.token is not None
    confirmed = plan(
        [], observed(instance("s0"), instance("s1")), confirmed=frozenset({question.token})
    )

    assert (len(three.changes), len(last.changes)) == (3, 1)
    assert [b.reason for b in four.blocked] == ["NeedsConfirmation"]
    assert both.changes == ()
    assert question.message.startswith(
        "all 2 services of node mac would stop. If that is meant, commit"
    )
    assert len(confirmed.changes) == 2


def test_all_services_of_a_node_wait_for_a_confirmation_also_once_new_ones_run() -> None:
    old, new = [instance("s0"), instance("s1")], [workload("t0"), workload("t1")]
    since = _since(old, new)

    first = plan(new, observed(*old), since=since)
    later = plan(new, observed(*old, *(instance(w.ref.name, of=w) for w in new)), since=since)

    assert set(actions(first).values()) == {"create"}
    assert later.changes == ()
    assert [b.token for b in first.blocked] == [b.token for b in later.blocked] != []


@pytest.mark.parametrize(
    ("wanted", "also_there", "is_asked"),
    [
        pytest.param([], [], True, id="nothing stays"),
        pytest.param([workload("c")], [], False, id="another comes"),
        pytest.param([workload("c")], [instance("c")], False, id="another stays"),
        pytest.param([workload("c", node="mini")], [instance("c")], False, id="another moves away"),
        pytest.param([workload("c", node="mini")], [], True, id="another is placed elsewhere"),
        pytest.param(
            [workload("c", settings={"contextSize": 1})], [instance("c")], False, id="is replaced"
        ),
        pytest.param([], [instance("c", of=workload("c", node="mini"))], True, id="on two nodes"),
    ],
)
def test_a_node_that_keeps_or_receives_a_service_is_not_left_without_any(
    wanted: list[Workload], also_there: list[Instance], is_asked: bool
) -> None:
    state = {f"node/{n}": TargetState(f"node/{n}", reachable=True) for n in ("mac", "mini")}
    seen = Observation(state, (instance("a"), instance("b"), *also_there))

    made = plan(wanted, seen)

    questions = [(b.target, [r.name for r in b.holds]) for b in made.blocked if b.token]
    assert questions == ([(NODE, ["a", "b"])] if is_asked else [])
    removed = {c.ref.name for c in made.changes if c.reason == "Removed"}
    assert removed.isdisjoint("ab") if is_asked else removed == {"a", "b"}


@pytest.mark.parametrize("share", [0.3, 1.0], ids=["a large share", "all of each node"])
def test_a_plan_for_all_nodes_and_each_of_their_agents_count_the_whole_fleet(share: float) -> None:
    labels = frozenset(f"default/s{i}" for i in range(4))
    nodes = {f"node/{name}": TargetState(f"node/{name}", reachable=True) for name in "ab"}
    there = [instance(f"s{i}", target=f"node/{'ab'[i % 2]}") for i in range(4)]
    last = SinceApplied(labels, 4)  # all four were renamed

    def held(*names: str, **limits: Any) -> list[str | None]:
        targets = {f"node/{name}": nodes[f"node/{name}"] for name in names}
        seen = Observation(targets, tuple(i for i in there if i.target in targets))
        since = dict.fromkeys(targets, last)
        made = plan([], seen, since=since, max_share=share, **limits)
        return [b.token for b in made.blocked]

    (token,) = set(held("a", "b"))

    assert token
    assert held("a") == held("b") == [token]
    assert held("a", confirmed=frozenset({token})) == []
    assert held("a", "b", confirmed=frozenset({token})) == []


def test_a_new_service_never_takes_the_memory_of_one_that_runs() -> None:
    running = workload("zeta", needs=need(8 * GIB))
    late = workload("alpha", needs=need(4 * GIB))

    made = plan([running, late], observed(instance("zeta", of=running)))

    assert made.changes == ()
    assert [(b.ref.name, b.reason) for b in made.blocked] == [("alpha", "MemoryFits")]
    assert "default/zeta" in made.blocked[0].message


def test_a_service_that_runs_and_one_that_waits_for_its_memory_are_told_a_way_out() -> None:
    late = workload("critical", needs=need(4 * GIB))
    held = Blocked(ref("low"), "MemoryFits", "does not fit", None, None, (ref("low"),))

    made = plan([late], observed(instance("low", of=workload("low", needs=need(8 * GIB)))), [held])

    why = {b.ref.name: b.message for b in made.blocked}
    assert "default/low 8.0 GiB" in why["critical"]
    assert why["critical"].endswith("; suspend one of them, or lower what is asked")


def test_a_service_too_large_for_an_empty_node_is_told_to_shrink() -> None:
    made = plan([workload("big", needs=need(20 * GIB))], observed())

    assert made.blocked[0].message == (
        "needs 20.0 GiB of host memory, which has a budget of 10.0 GiB; lower what is asked"
    )


def test_the_room_of_a_service_whose_next_model_is_not_known_is_nobodys() -> None:
    """A replacement of unknown size read as one that takes nothing: it went first, and a neighbour
    was admitted into what it still held."""
    old = workload("old", needs=need(8 * GIB))
    other = workload("old", models=(model_file(sha256=None, source="https://models.test/n.gguf"),))
    late = workload("late", needs=need(4 * GIB))

    made = plan([other, late], observed(instance("old", of=old)))

    (replaced,) = made.changes
    (memory,) = replaced.impact.memory
    assert replaced.action is Action.REPLACE
    assert (memory.before_bytes, memory.after_bytes, memory.peak_bytes) == (8 * GIB, None, None)
    assert [(b.ref.name, b.reason) for b in made.blocked] == [("late", "MemoryFits")]
    assert "memory 8.0 -> ? of 10.0 GiB" in plan_text(made, 0.0)


def test_what_runs_and_nobody_sized_does_not_begin_at_nothing() -> None:
    running, wanted = (
        instance("old", of=workload("old", needs=())),
        workload("old", needs=need(GIB)),
    )

    (changed,) = plan([replace(wanted, runtime="mlx-lm")], observed(running)).changes

    assert [(m.before_bytes, m.after_bytes) for m in changed.impact.memory] == [(None, GIB)]


def test_memory_that_a_removal_frees_can_be_used_in_the_same_pass() -> None:
    old = instance("old", needs=need(8 * GIB))
    new = workload("new", needs=need(8 * GIB))

    made = plan([new], observed(old))

    assert [c.action for c in made.changes] == [Action.DELETE, Action.CREATE]
    assert [c.impact.order for c in made.changes] == [0, 1]


def test_one_model_file_of_two_services_is_counted_once() -> None:
    shared = need(6 * GIB, weights=(("ab", 5 * GIB),))
    both = [workload("a", needs=shared), workload("b", needs=shared)]

    made = plan(both, observed())

    assert len(made.changes) == 2
    assert made.changes[1].impact.memory[0].after_bytes == 7 * GIB


def test_mode_warn_lets_a_service_through_that_does_not_fit() -> None:
    want = workload("big", needs=need(20 * GIB), lifecycle={"memory.mode": "warn"})

    made = plan([want], observed())

    assert actions(made) == {"big": "create"}


def test_memory_in_use_by_others_is_a_tenant_of_the_node() -> None:
    pool = ObservedPool("host", 16 * GIB, 10 * GIB, 4 * GIB, "pid 71 (browser), 3.1 GiB")
    small, large = workload("a", needs=need(5 * GIB)), workload("b", needs=need(7 * GIB))

    fits = plan([small], observed(pools=(pool,)))
    refused = plan([large], observed(pools=(pool,)))

    assert actions(fits) == {"a": "create"}
    assert [b.message for b in refused.blocked] == [
        "needs 7.0 GiB of host memory; with 4.0 GiB in use by other processes"
        " that is 11.0 GiB of 10.0 GiB;"
        " lower what is asked; or free 1.0 GiB of what others use there"
        " (the largest: pid 71 (browser), 3.1 GiB)"
    ]


def test_what_runs_keeps_its_memory_when_others_take_more() -> None:
    pool = ObservedPool("host", 16 * GIB, 10 * GIB, 9 * GIB)
    running = workload("chat", needs=need(8 * GIB))
    noted = workload("chat", needs=need(8 * GIB), lifecycle={"rollout.drainTimeout": 5.0})
    smaller = workload("chat", needs=need(6 * GIB), settings={"contextSize": 1})
    larger = workload("chat", needs=need(9 * GIB), settings={"contextSize": 2})
    here = observed(instance("chat", of=running), pools=(pool,))

    assert plan([running], here).exit_code == 0
    assert actions(plan([noted], here)) == {"chat": "update"}
    assert actions(plan([smaller], here)) == {"chat": "replace"}
    assert [b.reason for b in plan([larger], here).blocked] == ["MemoryFits"]


def test_unknown_use_by_others_refuses_nothing() -> None:
    pool = ObservedPool("host", 16 * GIB, 10 * GIB, None)

    assert actions(plan([workload("a", needs=need(9 * GIB))], observed(pools=(pool,)))) == {
        "a": "create"
    }


def test_mode_warn_says_what_it_lets_through() -> None:
    pool = ObservedPool("host", 16 * GIB, 10 * GIB, 4 * GIB)
    want = workload("big", needs=need(8 * GIB), lifecycle={"memory.mode": "warn"})

    (change,) = plan([want], observed(pools=(pool,))).changes

    assert change.message == (
        "MemoryOverridden: needs 8.0 GiB of host memory; with 4.0 GiB in use by other processes"
        " that is 12.0 GiB of 10.0 GiB; started all the same, by memory.mode: warn"
    )


def test_a_held_service_is_shown_and_left_as_it_is() -> None:
    want = workload("chat", settings={"contextSize": 1024}, lifecycle={"hold": "true"})

    made = plan([want], observed(instance("chat")))

    assert [b.reason for b in made.blocked] == ["Held"]
    assert made.blocked[0].message == (
        "contextSize 8192 -> 1024, rollout.drainTimeout 60.0 -> unset; left as it is by its hold"
        " annotation"
    )
    assert made.changes == ()


names = st.sets(st.sampled_from(["a", "b", "c", "d", "e", "f"]))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Workload], list[Instance]]:
    """Desired and observed services of one node, some of them alike."""
    sizes = st.integers(0, 6).map(lambda n: need(n * GIB) if n else ())
    contexts = st.sampled_from([1024, 2048])
    wanted = [
        workload(n, settings={"contextSize": draw(contexts)}, needs=draw(sizes))
        for n in sorted(draw(names))
    ]
    running = [
        instance(n, of=workload(n, settings={"contextSize": draw(contexts)}, needs=draw(sizes)))
        for n in sorted(draw(names))
    ]
    return wanted, running


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_handed_in_does_not_matter(world: Any, random: Any) -> None:
    wanted, running = world
    shuffled = list(wanted), list(running)
    for part in shuffled:
        random.shuffle(part)

    assert plan(wanted, observed(*running)) == plan(shuffled[0], observed(*running))
    assert plan(wanted, observed(*running)).changes == plan(wanted, observed(*shuffled[1])).changes


@given(worlds())
def test_after_one_pass_a_second_plan_is_empty(world: Any) -> None:
    wanted, running = world
    asked = plan(wanted, observed(*running)).blocked
    everything = {"confirmed": frozenset(b.token for b in asked if b.token)}
    first = plan(wanted, observed(*running), **everything)
    after = {i.ref: i for i in running}
    for change in first.changes:
        if change.action is Action.DELETE:
            del after[change.ref]
        elif change.desired is not None:
            before = after.get(change.ref)
            needs = change.desired.needs or (before.needs if before else ())  # else still unknown
            after[change.ref] = instance(change.ref.name, of=change.desired, needs=needs)

    second = plan(wanted, observed(*after.values()), **everything)

    assert second.changes == ()
    assert {b.ref for b in second.blocked} == {b.ref for b in first.blocked}


@given(worlds(), st.integers(0, 10))
def test_no_node_is_given_more_memory_than_its_budget_less_what_others_use(
    world: Any, others_gib: int
) -> None:
    wanted, running = world
    others = others_gib * GIB
    fits_now = sum(n.bytes for i in running for n in i.needs) + others <= 10 * GIB
    pool = ObservedPool("host", 16 * GIB, 10 * GIB, others)

    made = plan(wanted, observed(*running, pools=(pool,)), max_count=100, max_share=1.0)

    for change in made.changes:
        for memory in change.impact.memory:
            grows = (memory.after_bytes or 0) > (memory.before_bytes or 0)
            if change.desired is not None and change.desired.needs and (fits_now or grows):
                assert (memory.after_bytes or 0) + others <= (memory.budget_bytes or 0)


@given(worlds())
def test_adding_a_service_changes_nothing_about_the_others_that_run(world: Any) -> None:
    wanted, running = world
    more = [*wanted, workload("zz-new", needs=need(3 * GIB))]

    before = plan(wanted, observed(*running), since=_since(running, wanted))
    after = plan(more, observed(*running), since=_since(running, more))

    kept = [(c.action, c.ref) for c in after.changes if c.ref.name != "zz-new"]
    assert kept == [(c.action, c.ref) for c in before.changes]
    questions = [[b.token for b in made.blocked if b.token] for made in (before, after)]
    assert questions[0] == questions[1]


def _since(running: list[Instance], wanted: list[Workload]) -> dict[str, SinceApplied]:
    """The history of a node that runs what the revision before declared."""
    before, now = ({each.ref.label for each in of} for of in (running, wanted))
    return {NODE: SinceApplied(frozenset(before - now), len(before), frozenset(now - before))}


@pytest.mark.parametrize(
    "desired",
    [
        pytest.param([], id="removed"),
        pytest.param(
            [workload("chat", suspended=True, lifecycle={"hold": "true"})], id="suspended"
        ),
        pytest.param(
            [workload("chat", settings={"contextSize": 1}, lifecycle={"hold": "true"})],
            id="changed",
        ),
    ],
)
def test_whatever_happens_to_a_held_service_is_shown_and_not_done(desired: list[Workload]) -> None:
    have = instance("chat", of=workload("chat", lifecycle={"hold": "true"}))

    made = plan(desired, observed(have))

    assert made.changes == ()
    assert [b.reason for b in made.blocked] == ["Held"]


@pytest.mark.parametrize(
    ("before", "after", "is_held"),
    [({}, {"hold": "true"}, True), ({"hold": "true"}, {}, False)],
    ids=["held with its move", "released with its move"],
)
def test_of_a_service_that_moves_the_declared_hold_counts(
    before: dict[str, Any], after: dict[str, Any], is_held: bool
) -> None:
    have = instance("chat", of=workload("chat", lifecycle=before))

    made = plan([workload("chat", node="other", lifecycle=after)], observed(have))

    assert [b.reason for b in made.blocked] == (["Held"] if is_held else [])
    assert actions(made) == ({} if is_held else {"chat": "move"})


def test_what_is_only_shown_of_a_held_service_blocks_nothing() -> None:
    chat = workload("chat", lifecycle={"hold": "true"})
    drifts = (Drift(DriftKind.COSMETIC, "a file is gone", 1.0),)

    made = plan([chat], observed(instance("chat", chat, drifts=drifts)))

    assert [c.reason for c in made.changes] == ["DriftShown"]
    assert (made.blocked, made.exit_code) == ((), 0)


def test_the_hold_itself_is_noted_without_a_restart() -> None:
    made = plan([workload("chat", lifecycle={"hold": "true"})], observed(instance("chat")))

    assert actions(made) == {"chat": "update"}
    assert made.blocked == ()


def test_what_another_fleet_started_is_removed_only_when_confirmed() -> None:
    limits = {"foreign": {"default/theirs": "/srv/other"}}
    waiting = plan([workload("new")], observed(instance("theirs")), **limits)
    (held,) = waiting.blocked

    released = plan(
        [workload("new")],
        observed(instance("theirs")),
        confirmed=frozenset({held.token}),
        **limits,
    )

    assert actions(waiting) == {"new": "create"}
    assert "/srv/other" in held.message
    assert held.source is None  # the file is the other fleet's
    assert [c.source for c in released.changes if c.ref.name == "theirs"] == [None]
    assert actions(released) == {"new": "create", "theirs": "delete"}


def test_a_removed_service_with_a_prune_annotation_is_kept_and_said() -> None:
    have = instance("chat", of=workload("chat", lifecycle={"prune": "disabled"}))

    made = plan([], observed(have))

    assert made.changes == ()
    assert [(b.reason, b.ref.name) for b in made.blocked] == [("PruneDisabled", "chat")]
    assert made.exit_code == 3


def test_a_service_that_a_person_stopped_goes_and_is_no_change_afterwards() -> None:
    chat = workload("chat")
    stopped = {ref("chat"): chat.inputs_digest}

    stopping = plan([chat], observed(instance("chat"), stopped=stopped))
    stays = plan([chat], observed(stopped=stopped))

    assert [(c.action, c.reason) for c in stopping.changes] == [(Action.STOP, "StoppedByHand")]
    assert (stays.changes, stays.blocked, stays.exit_code) == ((), (), 0)


def test_a_service_that_a_person_stopped_comes_back_with_its_next_input_change() -> None:
    before = workload("chat")
    after = workload("chat", settings={"contextSize": 4096})

    made = plan([after], observed(stopped={ref("chat"): before.inputs_digest}))

    assert actions(made) == {"chat": "create"}


def test_a_persons_stop_counts_for_a_service_that_the_fleet_holds_too() -> None:
    chat = workload("chat")
    held = Blocked(ref("chat"), "MemoryFits", "too large", None, NODE, (ref("chat"),))

    made = plan([], observed(instance("chat"), stopped={ref("chat"): chat.inputs_digest}), [held])

    assert actions(made) == {"chat": "stop"}


def test_a_move_to_a_node_where_the_service_is_stopped_by_hand_says_that_it_waits_for_that() -> (
    None
):
    chat = workload("chat", node="other")
    here = observed(instance("chat"))
    stopped = TargetState("node/other", True, stopped={chat.ref: chat.inputs_digest})
    there = replace(here, targets={**here.targets, "node/other": stopped})

    made = plan([chat], there)
    after = plan([workload("chat", node="other", settings={"contextSize": 4096})], there)

    assert made.changes == ()
    (blocked,) = made.blocked
    assert (blocked.target, blocked.reason) == (NODE, "StoppedByHand")
    assert blocked.message == (
        "it stays on node mac until it is ready on node other: it was stopped there by hand:"
        " on the node, `fleet-agent restart default/chat` starts it"
    )
    assert (made.exit_code, after.blocked) == (3, ())


def test_nothing_is_stopped_by_hand_on_a_node_that_does_not_answer() -> None:
    chat = workload("chat")
    seen = observed(instance("chat"), reachable=False, stopped={ref("chat"): chat.inputs_digest})

    assert actions(plan([chat], seen)) == {"chat": "unknown"}


@pytest.mark.parametrize("lifecycle", [{}, {"hold": "true"}])
def test_a_restart_by_hand_replaces_what_runs_as_declared(lifecycle: dict[str, str]) -> None:
    chat = workload("chat", lifecycle=lifecycle)

    made = plan([chat], observed(instance("chat", chat), restarts=frozenset({ref("chat")})))

    assert [(c.action, c.reason) for c in made.changes] == [(Action.REPLACE, "RestartedByHand")]
    assert made.changes[0].desired is chat


def _router(context: int = 512, resident: int = 1, **overrides: Any) -> Workload:
    settings = {"router.resident": resident, "models[a].contextSize": context}
    return workload("chat", runtime="llamacpp-router", settings=settings, **overrides)


def test_a_change_of_one_of_many_models_updates_in_place() -> None:
    made = plan([_router(1024)], observed(instance("chat", of=_router(), pid=7)))

    (change,) = made.changes
    assert (change.action, change.impact.restart) == (Action.UPDATE, Restart.HOT)
    assert change.reason == "SettingsChanged"
    assert [(f.path, f.forces_restart) for f in change.fields] == [("models[a].contextSize", False)]


def test_a_change_of_what_a_router_itself_was_started_with_replaces_it() -> None:
    made = plan([_router(1024, resident=2)], observed(instance("chat", of=_router(), pid=7)))

    assert actions(made) == {"chat": "replace"}


@pytest.mark.parametrize("state", [{"pid": None}, {"pid": 7, "gone": True}])
def test_a_router_without_a_process_starts_with_the_change(state: dict[str, Any]) -> None:
    made = plan([_router(1024)], observed(instance("chat", of=_router(), **state)))

    assert actions(made) == {"chat": "replace"}


def test_a_held_router_keeps_its_models_as_they_are() -> None:
    held = {"hold": "true"}
    running = instance("chat", of=_router(lifecycle=held), pid=7)

    made = plan([_router(1024, lifecycle=held)], observed(running))

    assert made.changes == ()
    assert [b.reason for b in made.blocked] == ["Held"]


def test_a_restart_by_hand_goes_before_what_is_said_of_its_process() -> None:
    """It mends a drift too, and also of a service that is to be left as it is."""
    chat = workload("chat", lifecycle={"hold": "true"})
    drifts = (Drift(DriftKind.RESTART, "another argv", 1.0),)
    seen = observed(instance("chat", chat, drifts=drifts), restarts=frozenset({ref("chat")}))

    made = plan([chat], seen)

    assert [(c.action, c.reason) for c in made.changes] == [(Action.REPLACE, "RestartedByHand")]
