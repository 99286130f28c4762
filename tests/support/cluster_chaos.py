"""A cluster and two machines beside it, to break: a git remote, real programs, two fleets.

    with ClusterWorld.open(tmp_path, tiny, seed=1) as world:
        world.converge()                 # and holds every law that must hold after it
        ...break something, heal it...
        world.converge()

The reconciler has the rights that its installation gives it and reaches the API server through
`proxy`, as the agent does; people with kubectl go straight there. What is broken is in
tests.support.cluster_faults; what may never happen, whatever broke, in tests.support.cluster_laws.
"""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.kube.client.access import open_cluster
from reconciler.kube.client.credentials import Grant
from tests.support.cluster import Cluster, running_cluster
from tests.support.cluster_declared import (
    CONTEXTS,
    FOREIGN,
    MAC,
    MINI,
    POOL,
    TEAM,
    Declared,
    first_files,
    other_files,
)
from tests.support.cluster_laws import ClusterLaws
from tests.support.cluster_wipe import SYSTEM
from tests.support.counting_engine import write_engine
from tests.support.fault_proxy import FaultProxy
from tests.support.installed import install, rights_of
from tests.support.ports import own_port
from tests.support.reconciler import Finished, Machine, Running
from tests.support.repos import Repo
from tests.support.rounds import story, wait_converged
from tests.support.served_node import request
from tests.support.wait import PATIENCE_S, wait_for

CONVERGE_S = 3 * PATIENCE_S


@dataclass
class ClusterWorld:
    cluster: Cluster
    random: random.Random
    repo: Repo
    other: Repo  # of another fleet in the same cluster
    proxy: FaultProxy
    laws: ClusterLaws
    kubeconfig: Path  # the reconciler's, through the proxy
    agent_kubeconfig: Path
    machine: Machine  # where reconcilers run
    mac: Machine  # its agent follows the cluster
    mini: Machine  # and this one git
    ports: dict[str, int]  # where agents are read
    engine: str
    reconcilers: list[Running] = field(default_factory=list)
    agents: dict[str, Running] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    slowest_s: float = 0.0  # of all waits for convergence

    @classmethod
    @contextlib.contextmanager
    def open(cls, root: Path, tiny: Path, seed: int = 0) -> Iterator[ClusterWorld]:
        """Everything runs, and has not converged yet."""
        folders = [root / name for name in ("reconcilers", "mac", "mini")]
        for folder in folders:
            folder.mkdir(parents=True)
        with contextlib.ExitStack() as held:
            cluster = held.enter_context(running_cluster())
            for name in ("edge-1", "edge-2"):
                cluster.add_node(name, {"pool": "edge"})
            install(cluster)
            own = rights_of(cluster, root)
            agents = _agent_kubeconfig(cluster, root)
            proxy = held.enter_context(FaultProxy(_grant(own, "test")))
            api = cluster.client()
            held.callback(api.close)
            machine, mac, mini = (held.enter_context(Machine(folder)) for folder in folders)
            repo, other = Repo.create(root / "git"), Repo.create(root / "other")
            world = cls(
                cluster,
                random.Random(seed),
                repo,
                other,
                proxy,
                ClusterLaws(api, repo, mac, mini),
                proxy.write_kubeconfig(root / "reconciler.proxied"),
                proxy.write_kubeconfig(root / "agent.proxied", _grant(agents, None).authorization),
                machine,
                mac,
                mini,
                {"mac": own_port(), "mini": own_port()},
                write_engine(root),
            )
            cluster.namespace(TEAM)
            world._begin_fleet(tiny)
            world._make_foreign()
            world.start_reconciler()
            for name in world.ports:
                world.start_agent(name)
            yield world
            world.heal_proxy()

    @property
    def declared(self) -> dict[str, Declared]:
        return self.laws.declared

    @property
    def touched(self) -> set[str]:
        return self.laws.touched

    # What people and machines do

    def note(self, text: str) -> None:
        self.history.append(text)

    def push(self, message: str) -> str:
        """Push what is declared; the full sha."""
        folder = self.repo.work / "services"
        for file in folder.glob("*.yaml"):
            if file.stem not in self.declared:
                file.unlink()
        for own in self.declared.values():
            self.repo.write(f"services/{own.name}.yaml", own.text)
        return self.repo.commit(message)

    def change(self, name: str) -> None:
        """Other inputs for a service; written, not pushed."""
        own = self.declared[name]
        own.context = self.random.choice([size for size in CONTEXTS if size != own.context])
        if name in MAC + MINI:
            self.touched.add(name)

    def kubectl(self, *words: str) -> str:
        """A person's hand, which minds no failure."""
        return self.cluster.kubectl(*words, "--request-timeout=20s", check=False)

    def set_right(self, *words: str) -> None:
        """A person's hand that tries until the server answers; "not found" is an answer."""

        def is_answered() -> bool:
            said = self.kubectl(*words)
            return "rror" not in said or "NotFound" in said

        wait_for(is_answered, f"kubectl {' '.join(words)}")

    def in_default(self) -> str:
        """A service of the pool, of the namespace that never goes."""
        return self.random.choice(
            [name for name in POOL if name in self.declared and name != POOL[0]]
        )

    def reinstall(self) -> None:
        """What a person does whose definitions are gone; and the other fleet's people. Again when
        the API server hangs, as it may for a while after its etcd died."""
        to = ("--cluster", "prod=test", "--kubeconfig", str(self.cluster.kubeconfig))
        answers: list[str] = []

        def is_installed() -> bool:
            done = self.machine.reconcile("install", *to)
            answers.append(done.out + done.err)
            return done.code == 0

        wait_for(is_installed, answers)

    def start_reconciler(
        self, *words: str, kubeconfig: Path | None = None, elsewhere: bool = False
    ) -> Running:
        """Its way to the cluster is the proxy, unless a kubeconfig says otherwise. `elsewhere`: on
        another machine, so that it never waits for a lock of one that sleeps here."""
        cache = {"XDG_CACHE_HOME": str(self.machine.root / "elsewhere")} if elsewhere else {}
        running = self.machine.start(
            *("-C", str(self.repo.remote), "--cluster", "prod=test"),
            *("--kubeconfig", str(kubeconfig or self.kubeconfig), "--interval", "1s"),
            *("--listen", "127.0.0.1:0", *words),
            env={"FLEET_DEBUG": "1"} | cache,
        )
        self.reconcilers.append(running)
        return running

    def is_leader(self, running: Running) -> bool:
        """By its own word."""
        running.wait_said("served on port ")
        url = f"http://127.0.0.1:{running.err.partition('served on port ')[2].split()[0]}"
        return bool(request(url, "GET", "/readyz").json()["role"] == "leader")

    def shorten_lease(self) -> None:
        """What a person does who does not wait for the end of one whose holder sleeps."""
        spec = '{"spec": {"leaseDurationSeconds": 2}}'
        self.kubectl("patch", "lease", "fleet-home", "-n", SYSTEM, "--type=merge", "-p", spec)

    def end_reconciler(self, running: Running, number: signal.Signals) -> None:
        if number is not signal.SIGKILL:
            running.wait_said("served on port")  # before that it knows no signal
        self.reconcilers.remove(running)
        code = running.end(number)
        assert code == -number if number is signal.SIGKILL else code == 0, (code, running.err)

    @contextlib.contextmanager
    def other_loop(self) -> Iterator[Running]:
        """The other fleet's reconciler at work."""
        running = self.machine.start(*self._other_words, "--listen", "127.0.0.1:0")
        running.wait_said("this process applies the fleet now")
        yield running
        assert running.end() == 0, running.err

    def free_lease(self) -> None:
        """What a person does who does not wait until the Lease of a dead one is over."""
        self.kubectl("delete", "lease", "fleet-home", "-n", SYSTEM, "--ignore-not-found")

    def start_agent(self, name: str) -> None:
        follows = {
            "mac": ("--kubernetes", "--kubeconfig", str(self.agent_kubeconfig)),
            "mini": ("--fleet", str(self.repo.remote)),
        }
        machine = {"mac": self.mac, "mini": self.mini}[name]
        self.agents[name] = machine.daemon(
            *(*follows[name], "--node", name, "--llama-server", self.engine),
            env={"FLEET_PORT": str(self.ports[name]), "FLEET_DEBUG": "1"},
        )

    def heal_proxy(self) -> None:
        """As if nothing had ever been wrong with the network."""
        proxy = self.proxy
        proxy.latency_s, proxy.swallows, proxy.refuses = 0.0, False, False
        proxy.gone_watches, proxy.lose_answers = 0, 0
        proxy.not_served.clear()
        proxy.throttle(0)

    def dry_run(self) -> Finished:
        """A person's, past the proxy and on another machine: it waits for no loop that sleeps."""
        return self.machine.reconcile(
            *("--dry-run", "-C", str(self.repo.remote), "--cluster", "prod=test"),
            *("--kubeconfig", str(self.cluster.kubeconfig)),
            env={"XDG_CACHE_HOME": str(self.machine.root / "person")},
        )

    def begin_round(self) -> None:
        """Nothing is left of the round before."""

    def end_round(self) -> None:
        self.heal_proxy()

    def converge(self) -> None:
        """Wait until everything is as declared, and hold all laws. AssertionError with why."""
        wait_converged(self, lambda: self.laws.missing() or self._still_to_do(), CONVERGE_S)
        self.laws.hold()
        for running in (*self.reconcilers, *self.agents.values()):
            assert running.process.poll() is None, running.err

    def told(self) -> str:
        """For a person who has to find out what went wrong."""
        logs: list[Path] = []
        for where in (self.machine, self.mac, self.mini):
            logs += sorted(where.root.glob("run-*.err"), key=lambda f: f.stat().st_mtime)[-3:]
        return story(self.history, *logs)

    def _still_to_do(self) -> str | None:
        """By the word of a plan."""
        plan = self.dry_run()
        return None if plan.code == 0 else f"a dry run says {plan.code}: {plan.out}\n{plan.err}"

    def _begin_fleet(self, tiny: Path) -> None:
        for name in (*POOL, *MAC, *MINI):
            self.declared[name] = Declared(name, self.random.choice(CONTEXTS))
        self.repo.publish(first_files(tiny, self.ports["mac"], self.ports["mini"]))
        self.push("Begin")

    def _make_foreign(self) -> None:
        """Another fleet, applied once, and what has nothing to do with any."""
        self.cluster.namespace(FOREIGN)
        self.other.publish(other_files())
        done = self.machine.reconcile("--once", "--timeout", "60s", *self._other_words)
        assert done.code == 0, done.out + done.err
        for namespace in ("default", SYSTEM):
            create = ("create", "-n", namespace)
            self.cluster.kubectl(*create, "configmap", FOREIGN, "--from-literal=a=b")
            self.cluster.kubectl(*create, "service", "clusterip", FOREIGN, "--tcp=80:80")
        self.laws.foreign = self.laws.foreign_now()
        assert len(self.laws.foreign) > 6, self.laws.foreign

    @property
    def _other_words(self) -> tuple[str, ...]:
        config = ("--kubeconfig", str(self.cluster.kubeconfig))
        return ("-C", str(self.other.remote), "--cluster", "prod=test", *config)


def _agent_kubeconfig(cluster: Cluster, root: Path) -> Path:
    """As `reconcile install --agent mac` prints it, in a file."""
    with Machine(root / "installs") as machine:
        done = machine.reconcile(
            *("install", "--agent", "mac", "--cluster", "prod=test"),
            *("--kubeconfig", str(cluster.kubeconfig)),
        )
    assert done.code == 0, done.err
    path = root / "agent.kubeconfig"
    path.write_text(done.out)
    return path


def _grant(kubeconfig: Path, context: str | None) -> Grant:
    api = open_cluster("prod", context, kubeconfig=kubeconfig)
    try:
        return api.grant()
    finally:
        api.close()
