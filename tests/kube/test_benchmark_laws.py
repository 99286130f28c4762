"""Laws of what is measured in a cluster and when, with any pods, evidence, attempts and times."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.benchmark import EXPIRES_S, BenchmarkKey, BenchmarkResult, DeviceClass, Speeds
from reconciler.api.meta import service_ref
from reconciler.kube.benchmarks.deciding import (
    MOST_AT_ONCE,
    MOST_STARTED,
    BenchmarkDecision,
    JobAttempt,
    JobProgress,
    KnownResult,
    NeededBenchmark,
    decide,
    pause_s,
)
from reconciler.kube.benchmarks.subjects import MeasurableService, ServingPod, measurable
from reconciler.kube.benchmarks.unserved import UnservedClass
from reconciler.kube.objects import ObjectId
from reconciler.kube.render.placed import placed
from tests.support.cluster_views import CLUSTER, desired, fleet
from tests.support.fleets import model

NOW = 1_800_000_000.0
FILES = fleet(**{name: {} for name in "abcdef"})
WANT = desired(FILES | {"model.yaml": model(sha256="ab" * 32)})
SERVICES: dict[str, MeasurableService] = {
    each.ref.name: each
    for each in map(measurable, placed(WANT, CLUSTER))
    if isinstance(each, MeasurableService)
}
SERVED = {("default", s.digest, "llama-server") for s in SERVICES.values()}
DEVICES = tuple(
    DeviceClass(vendor="NVIDIA", arch=f"sm_{n}", memory_gib=23, count=1) for n in range(80, 87)
)
names = st.sampled_from(sorted(SERVICES))
builds = st.sampled_from(["image@sha256:1", "image@sha256:2"])
asks = st.sampled_from([None, None, None, "monday", "tuesday"])
devices = st.sampled_from(DEVICES)
ages = st.floats(0, 2 * EXPIRES_S)


def need(
    name: str = "a", build: str = "image@sha256:1", device: DeviceClass = DEVICES[0],
    asked: str | None = None, serves: bool = True, is_free: bool = True,
) -> NeededBenchmark:  # fmt: skip
    service = SERVICES[name]
    place: ServingPod | UnservedClass = ServingPod(
        service.ref, f"{name}-1", "node", "10.0.0.1", build, device
    )
    if not serves:
        place = UnservedClass(service.ref, build, device, (), is_free)
    return NeededBenchmark(service.key(build, device), service, place, asked)


def result(key: BenchmarkKey, age_s: float = 60.0) -> BenchmarkResult:
    return BenchmarkResult(
        key=key, service="default/a", model="tiny", node="node",
        generation=Speeds.of([50.0, 51.0]), measured_at=NOW - age_s, iterations=2,
    )  # fmt: skip


def evidence(of: NeededBenchmark, age_s: float = 60.0, asked: str | None = None) -> KnownResult:
    oid = ObjectId("", "ConfigMap", "default", of.key.config_map)
    return KnownResult(oid, result(of.key, age_s), asked=asked)


def attempt(
    of: NeededBenchmark, progress: JobProgress, number: int = 1, ended_s: float = 0.0
) -> JobAttempt:
    """`ended_s`: ago."""
    oid = ObjectId("batch", "Job", "default", f"{of.key.config_map}-{number}")
    found = result(of.key) if progress is JobProgress.DONE else None
    why = "too noisy" if progress is JobProgress.FAILED else ""
    ended = 0.0 if progress is JobProgress.RUNNING else NOW - ended_s
    starts = isinstance(of.place, UnservedClass)
    ref = of.service.ref
    return JobAttempt(oid, ref, of.key, number, progress, ended, found, why, of.asked, starts)


needs = st.lists(st.builds(need, names, builds, devices, asks, st.booleans()), max_size=12)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[NeededBenchmark], list[KnownResult], list[JobAttempt]]:
    wanted = draw(needs)
    others = draw(needs)
    known = [evidence(n, draw(ages), draw(asks)) for n in (*wanted, *others) if draw(st.booleans())]
    tried = [
        attempt(
            n,
            draw(st.sampled_from(JobProgress)),
            draw(st.integers(1, 9)),
            draw(st.floats(0, 200_000)),
        )
        for n in (*wanted, *others)
        if draw(st.booleans())
    ]
    return (
        wanted,
        list({e.oid: e for e in known}.values()),
        list({a.oid: a for a in tried}.values()),
    )


def decided(
    wanted: list[NeededBenchmark],
    known: list[KnownResult],
    tried: list[JobAttempt],
    now: float = NOW,
) -> BenchmarkDecision:
    services = {s.ref for s in SERVICES.values()}
    return decide(wanted, known, tried, services=services, served=SERVED, now=now)


World = tuple[list[NeededBenchmark], list[KnownResult], list[JobAttempt]]


@given(worlds())
def test_devices_of_one_class_measure_one_model_at_a_time_and_a_cluster_few(world: World) -> None:
    tried = world[2]
    found = decided(*world)

    running = [a for a in tried if a.progress is JobProgress.RUNNING and a.key is not None]
    begun = [n for n, _ in found.create]
    after = Counter(str(n.key.device) for n in begun)
    before = Counter(str(a.key.device) for a in running if a.key is not None)

    assert all(count == 1 and not before[device] for device, count in after.items())
    assert not begun or len(running) + len(begun) <= MOST_AT_ONCE
    starts = [n for n in begun if isinstance(n.place, UnservedClass)]
    assert not starts or len(starts) + sum(a.starts for a in running) <= MOST_STARTED


@given(worlds())
def test_what_is_known_runs_or_is_just_written_is_not_measured(world: World) -> None:
    wanted, known, tried = world
    found = decided(*world)

    begun = {n.key for n, _ in found.create}
    asked = {n.key for n in wanted if n.asked}
    counts = {e.result.key for e in known if e.result and e.result.stale(NOW) is None}

    assert begun <= {n.key for n in wanted}
    assert begun.isdisjoint(counts - asked)
    assert begun.isdisjoint(a.key for a in tried if a.progress is JobProgress.RUNNING)
    assert begun.isdisjoint(r.key for r, _ in found.write)


@given(worlds())
def test_an_attempt_has_a_name_that_no_other_has(world: World) -> None:
    found = decided(*world)

    there = {a.oid.name for a in world[2]}
    made = [f"{n.key.config_map}-{number}" for n, number in found.create]

    assert there.isdisjoint(made)
    assert len(set(made)) == len(made)


@given(worlds())
def test_nothing_that_runs_and_no_result_that_counts_and_is_needed_goes(world: World) -> None:
    _, known, tried = world
    found = decided(*world)

    assert not any(a.oid in found.remove for a in tried if a.progress is JobProgress.RUNNING)
    for each in known:
        if each.result is not None and each.result.stale(NOW) is None:
            newer = (e.result.measured_at for e in known if e.result and e is not each)
            assert each.oid not in found.remove or any(m > each.result.measured_at for m in newer)
    unwritten = {a.oid for _, a in found.write}
    assert unwritten.isdisjoint(found.remove)


@given(worlds())
def test_measuring_comes_to_an_end(world: World) -> None:
    """Each Job succeeds at once: in the end all is known, and nothing of Jobs is left."""
    wanted, known, tried = world
    rounds, pause = 60, 7200.0
    tried = [a for a in tried if a.progress is not JobProgress.RUNNING]
    # What expires meanwhile would begin again, and at last where nobody waits for its end.
    known = [e for e in known if not (e.result and _expires_within(e.result, rounds * pause))]
    now = NOW
    for _ in range(rounds):
        found = decided(wanted, known, tried, now)
        tried = [a for a in tried if a.oid not in found.remove]
        known = [e for e in known if e.oid not in found.remove]
        for new, by in found.write:
            oid = ObjectId("", "ConfigMap", "default", new.key.config_map)
            known = [e for e in known if e.oid != oid]
            known.append(KnownResult(oid, new, asked=by.asked))
        for n, number in found.create:
            made = attempt(n, JobProgress.DONE, number)
            fresh = made.result.model_copy(update={"measured_at": now}) if made.result else None
            tried.append(replace(made, result=fresh, ended_at=now))
        now += pause

    last = decided(wanted, known, tried, now)
    assert (last.create, last.failed, last.waiting) == ((), {}, {})
    keys = {e.result.key for e in known if e.result is not None}
    assert {n.key for n in wanted if isinstance(n.place, ServingPod)} <= keys
    assert {_without_build(n.key) for n in wanted} <= {_without_build(key) for key in keys}
    assert not any(a.progress is JobProgress.DONE for a in tried)


def _expires_within(result: BenchmarkResult, seconds: float) -> bool:
    return result.out_of_date(NOW) is None and result.out_of_date(NOW + seconds) is not None


def _without_build(key: BenchmarkKey) -> BenchmarkKey:
    return key.model_copy(update={"build": "any"})


def test_a_new_image_is_measured_where_it_serves_and_downloads_nothing_elsewhere() -> None:
    known, new = need("a", "image@sha256:1"), "image@sha256:2"

    assert [n.place.name for n, _ in decided([need("a", new)], [evidence(known)], []).create]
    assert decided([need("a", new, serves=False)], [evidence(known)], []).create == ()
    asked = need("a", new, serves=False, asked="now")
    assert [n for n, _ in decided([asked], [evidence(known)], []).create] == [asked]


def test_a_failure_is_tried_again_after_a_pause_that_grows_to_a_day() -> None:
    pauses = [pause_s(number) for number in range(1, 40)]

    assert pauses[:3] == [600.0, 1200.0, 2400.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 86_400.0
    failed = attempt(need(), JobProgress.FAILED, 2, ended_s=1199.0)
    early = decided([need()], [], [failed])
    assert early.create == ()
    assert early.failed == {
        service_ref("a"): "gemma on 1 x NVIDIA sm_80, 23 GiB was not measured (attempt 2: too"
        " noisy); tried again after 2027-01-15T08:00:01Z"
    }
    late = decided([need()], [], [replace(failed, ended_at=NOW - 1200.0)])
    assert [number for _, number in late.create] == [3]
    assert list(late.remove) == [failed.oid]


def test_a_clock_that_is_ahead_keeps_nobody_waiting_for_long() -> None:
    soon = attempt(need(), JobProgress.FAILED, ended_s=-600.0)
    never = attempt(need(), JobProgress.FAILED, ended_s=-3e11)

    assert decided([need()], [], [soon]).create == ()
    assert [number for _, number in decided([need()], [], [never]).create] == [2]


def test_what_is_asked_for_by_hand_is_measured_though_it_is_known_and_only_once() -> None:
    asked = need(asked="now")
    known = evidence(asked)

    assert [n for n, _ in decided([asked], [known], []).create] == [asked]
    assert decided([asked], [replace(known, asked="now")], []).create == ()
    failed = attempt(need(), JobProgress.FAILED, 5, ended_s=1.0)
    assert [number for _, number in decided([asked], [known], [failed]).create] == [6]


def test_what_serves_is_asked_before_an_engine_is_started_and_that_waits_for_a_free_gpu() -> None:
    serves, starts = need("b"), need("a", serves=False)
    same = need("c", serves=False)

    assert [n for n, _ in decided([starts, serves], [], []).create] == [serves]
    assert [n for n, _ in decided([same, need("c")], [], []).create] == [need("c")]
    assert [n for n, _ in decided([starts], [], []).create] == [starts]
    busy = decided([need("a", serves=False, is_free=False)], [], [])
    assert busy.create == ()
    assert busy.waiting == {
        service_ref("a"): "its pods and others of the fleet have every GPU of"
        " 1 x NVIDIA sm_80, 23 GiB"
    }


def test_evidence_that_is_edited_or_of_nothing_served_goes_and_old_evidence_is_replaced() -> None:
    wanted = need()
    edited = replace(evidence(wanted), result=None, refused="was edited by hand")
    of_none = evidence(wanted)
    foreign = result(wanted.key.model_copy(update={"model": "ef" * 32}))
    old = evidence(wanted, EXPIRES_S + 86_400.0)

    assert decided([wanted], [edited], []).remove == {edited.oid: "was edited by hand"}
    assert decided([], [replace(of_none, result=foreign)], []).remove == {
        of_none.oid: "its model is not served any more"
    }
    found = decided([wanted], [old], [])
    assert ([n for n, _ in found.create], found.remove) == ([wanted], {})
    assert decided([], [old], []).remove == {old.oid: "measured 91 days ago, and counts for 90"}


def test_what_another_namespace_says_of_a_model_keeps_nobody_from_measuring_it() -> None:
    wanted = need()
    known, running = evidence(wanted), attempt(wanted, JobProgress.RUNNING)
    elsewhere = service_ref("evil/a")
    evil = replace(known, oid=known.oid._replace(namespace="evil"))
    job = replace(running, oid=running.oid._replace(namespace="evil"), service=elsewhere)
    other_device = replace(job, key=need(device=DEVICES[1]).key)

    assert decided([wanted], [known], []).create == ()
    assert decided([wanted], [], [running]).create == ()
    found = decided([wanted], [evil], [other_device])
    assert [each for each, _ in found.create] == [wanted]
    assert found.remove[evil.oid] == "its model is not served any more"
    assert decided([wanted], [], [job]).remove == {job.oid: "its service is not measured any more"}
    done = attempt(wanted, JobProgress.DONE)
    assert [by.oid for _, by in decided([], [evil], [done]).write] == [done.oid]


def test_the_job_of_a_service_that_is_measured_no_more_goes() -> None:
    running = attempt(need("a"), JobProgress.RUNNING)

    found = decide([need("b")], [], [running], services={SERVICES["b"].ref}, served=SERVED, now=NOW)

    assert found.remove == {running.oid: "its service is not measured any more"}
