"""A cluster and a Mac beside it, to break: a git remote, a real reconciler, an agent, two fleets.

    with ClusterWorld.open(tmp_path, tiny, seed=1) as world:
        world.converge()                 # and holds every law that must hold after it
        ...break something, heal it...
        world.converge()

The reconciler has the rights that its installation gives it and reaches the API server through
`proxy`, as the agent does; people with kubectl go straight there. What broke is in
tests.support.cluster_faults; what may never happen, whatever broke, is here.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.api.meta import GROUP
from reconciler.kube.apiserver.access import open_cluster
from reconciler.kube.apiserver.client import ApiServer
from reconciler.kube.apiserver.credentials import Grant
from reconciler.kube.objects import FLEET_LABEL, INPUTS_ANNOTATION, OWNED_KINDS
from tests.support.beside_cluster import own_address
from tests.support.cluster import SYSTEM, Cluster, running_cluster
from tests.support.counting_engine import write_engine
from tests.support.fault_proxy import FaultProxy
from tests.support.fleets import document, model, node
from tests.support.installed import install
from tests.support.reconciler import Finished, Machine, Running
from tests.support.repos import Repo
from tests.support.wait import wait_for

POOL, MAC, TEAM = ("amber", "basil", "cedar", "delta"), ("mica", "onyx"), "team"
SPARE = "ember"  # of the pool, and not there at first
CONTEXTS = (256, 384, 512)
CONVERGE_S = 90.0
_LOOK_S = 0.05
_FOREIGN = "foreign"


@dataclass(slots=True)
class Declared:
    """One service as it is in git."""

    name: str
    context: int
    replicas: int = 1

    @property
    def namespace(self) -> str:
        """One of the pool has a namespace of its own, which may go."""
        return TEAM if self.name == POOL[0] else "default"

    @property
    def text(self) -> str:
        is_mac = self.name in MAC
        spec: dict[str, Any] = {"contextSize": self.context}
        spec |= {"placement": {"nodes": ["mac" if is_mac else "edge"]}}
        spec |= {} if is_mac else {"replicas": self.replicas}
        spec |= {"modelRef": "tiny" if is_mac else "phi"}
        return document("InferenceService", self.name, spec, namespace=self.namespace)


@dataclass
class ClusterWorld:
    cluster: Cluster
    random: random.Random
    repo: Repo
    other: Repo  # of another fleet in the same cluster
    proxy: FaultProxy
    api: ApiServer  # past the proxy, with all rights: it only looks
    kubeconfig: Path  # the reconciler's, through the proxy
    agent_kubeconfig: Path
    machine: Machine  # where reconcilers run
    mac: Machine
    port: int
    engine: str
    declared: dict[str, Declared] = field(default_factory=dict)
    reconcilers: list[Running] = field(default_factory=list)
    agent: Running | None = None
    touched: set[str] = field(default_factory=set)  # services that may be made anew
    foreign: dict[str, str] = field(default_factory=dict)  # object -> resourceVersion
    uids: dict[str, str] = field(default_factory=dict)  # of Deployments, as it converged last
    pids: dict[str, int] = field(default_factory=dict)  # on the Mac, as it converged last
    history: list[str] = field(default_factory=list)
    slowest_s: float = 0.0  # of all waits for convergence

    @classmethod
    @contextlib.contextmanager
    def open(cls, root: Path, tiny: Path, seed: int = 0) -> Iterator[ClusterWorld]:
        """Everything runs, and has not converged yet."""
        folders = [root / name for name in ("reconcilers", "mac")]
        for folder in folders:
            folder.mkdir(parents=True)
        with contextlib.ExitStack() as held:
            cluster = held.enter_context(running_cluster())
            for name in ("edge-1", "edge-2"):
                cluster.add_node(name, {"pool": "edge"})
            own = install(cluster, root)
            agents = _agent_kubeconfig(cluster, root)
            proxy = held.enter_context(FaultProxy(_grant(own, "test")))
            api = open_cluster("prod", "test", kubeconfig=cluster.kubeconfig)
            held.callback(api.close)
            machine, mac = (held.enter_context(Machine(folder)) for folder in folders)
            world = cls(
                cluster,
                random.Random(seed),
                Repo.create(root / "git"),
                Repo.create(root / "other"),
                proxy,
                api,
                proxy.write_kubeconfig(root / "reconciler.proxied"),
                _proxied(agents, proxy, root / "agent.proxied"),
                machine,
                mac,
                _free_port(),
                write_engine(root),
            )
            cluster.namespace(TEAM)
            world._begin_fleet(tiny)
            world._make_foreign()
            world.start_reconciler()
            world.start_agent()
            yield world
            world.heal_proxy()

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
        if name in MAC:
            self.touched.add(name)

    def kubectl(self, *words: str) -> str:
        """A person's hand, which minds no failure."""
        return self.cluster.kubectl(*words, "--request-timeout=5s", check=False)

    def set_right(self, *words: str) -> None:
        """A person's hand that tries until the server answers; "not found" is an answer."""

        def is_answered() -> bool:
            said = self.kubectl(*words)
            return "rror" not in said or "NotFound" in said

        wait_for(is_answered, f"kubectl {' '.join(words)}", timeout_s=60)

    def in_default(self) -> str:
        """A service of the pool, of the namespace that never goes."""
        return self.random.choice(
            [name for name in POOL if name in self.declared and name != POOL[0]]
        )

    def reinstall(self) -> None:
        """What a person does whose definitions are gone; and the other fleet's people."""
        done = self.machine.reconcile(
            *("install", "--cluster", "prod=test", "--kubeconfig", str(self.cluster.kubeconfig))
        )
        assert done.code == 0, done.out + done.err

    def start_reconciler(self) -> Running:
        running = self.machine.start(
            *("-C", str(self.repo.remote), "--cluster", "prod=test"),
            *("--kubeconfig", str(self.kubeconfig), "--interval", "500ms"),
            *("--listen", "127.0.0.1:0"),
            env={"FLEET_DEBUG": "1"},
        )
        self.reconcilers.append(running)
        return running

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

    def start_agent(self) -> None:
        self.agent = self.mac.daemon(
            *("--kubernetes", "--kubeconfig", str(self.agent_kubeconfig), "--node", "mac"),
            *("--llama-server", self.engine),
            env={"FLEET_PORT": str(self.port), "FLEET_DEBUG": "1"},
        )

    def heal_proxy(self) -> None:
        """As if nothing had ever been wrong with the network."""
        proxy = self.proxy
        proxy.latency_s, proxy.swallows, proxy.refuses = 0.0, False, False
        proxy.gone_watches, proxy.lose_answers = 0, 0
        proxy.not_served.clear()
        proxy.throttle(0)

    def dry_run(self) -> Finished:
        """A person's, past the proxy."""
        return self.machine.reconcile(
            *("--dry-run", "-C", str(self.repo.remote), "--cluster", "prod=test"),
            *("--kubeconfig", str(self.cluster.kubeconfig)),
        )

    # What holds

    def converge(self) -> None:
        """Wait until everything is as declared, and hold all laws. AssertionError with why."""
        begun = time.monotonic()
        while (why := self.missing() or self._still_to_do()) is not None:
            assert time.monotonic() - begun < CONVERGE_S, f"not within {CONVERGE_S:g} s: {why}"
            time.sleep(_LOOK_S)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        self._hold_foreign()
        self._hold_places()
        self.touched.clear()
        for running in (*self.reconcilers, self.agent):
            assert running is not None
            assert running.process.poll() is None, running.err

    def missing(self) -> str | None:
        """What is not as declared; None: nothing."""
        inventory = self._one("configmaps", SYSTEM, "fleet-home")
        head, data = self.repo.head(), (inventory or {}).get("data") or {}
        if data.get("revision") != head:
            return f"applied is {data.get('revision')}, not {head}"
        return self._missing_in_pool() or self._missing_on_mac() or self._leftover()

    def told(self) -> str:
        """For a person who has to find out what went wrong."""
        parts = ["--- rounds", *self.history[-40:]]
        for where in (self.machine, self.mac):
            logs = sorted(where.root.glob("run-*.err"), key=lambda f: f.stat().st_mtime)
            for log in logs[-3:]:
                parts += [f"--- {log}", log.read_text(errors="replace")[-3000:]]
        return "\n".join(parts)

    def deployments(self) -> dict[str, Mapping[str, Any]]:
        found = self._list("deployments", f"{FLEET_LABEL}=home")
        return {item["metadata"]["name"]: item for item in found}

    def _still_to_do(self) -> str | None:
        """By the word of a plan."""
        plan = self.dry_run()
        return None if plan.code == 0 else f"a dry run says {plan.code}: {plan.out}\n{plan.err}"

    def _missing_in_pool(self) -> str | None:
        live = self.deployments()
        wanted = {name: own for name, own in self.declared.items() if name not in MAC}
        if live.keys() != wanted.keys():
            return f"Deployments {sorted(live)} instead of {sorted(wanted)}"
        for name, own in wanted.items():
            inputs = json.loads(live[name]["metadata"]["annotations"].get(INPUTS_ANNOTATION, "{}"))
            if inputs.get("settings", {}).get("contextSize") != own.context:
                return f"{name} has not the context {own.context}: {inputs}"
            if live[name]["spec"]["replicas"] != own.replicas:
                return f"{name} has not {own.replicas} replicas"
            if live[name]["status"].get("readyReplicas") != own.replicas:
                return f"the pods of {name} are not ready"
        return None

    def _missing_on_mac(self) -> str | None:
        services = {o["metadata"]["name"]: o for o in self._list("inferenceservices", "")}
        theirs = {"theirs"}
        if services.keys() - theirs != self.declared.keys():
            return f"InferenceServices {sorted(services)}"
        for name, live in services.items():
            ready = (live.get("status") or {}).get("conditions") or ()
            states = {c["type"]: c["status"] for c in ready}
            if states.get("Ready") != "True" and name not in theirs:
                return f"{name} is not Ready: {ready}"
        found = self.mac.instances()
        if found.keys() != set(MAC):
            return f"the Mac has {sorted(found)}"
        for name in MAC:
            if not found[name].ready:
                return f"{name} does not answer on the Mac"
            if found[name].inputs["settings"]["contextSize"] != self.declared[name].context:
                return f"{name} has not the context {self.declared[name].context} on the Mac"
        return self._missing_slice()

    def _missing_slice(self) -> str | None:
        slices = self._list("endpointslices", f"{GROUP}/node=mac")
        ready = {s["metadata"]["name"] for s in slices if s["endpoints"][0]["conditions"]["ready"]}
        wanted = {f"{name}-mac" for name in MAC}
        return None if ready == wanted else f"slices {sorted(ready)}"

    def _leftover(self) -> str | None:
        """What is left of a service that nobody declares."""
        for kind in ("services", "jobs", "configmaps"):
            for item in self._list(kind, f"{FLEET_LABEL}=home"):
                name = (item["metadata"]["labels"]).get(f"{GROUP}/inference-service")
                if name is not None and name not in self.declared:
                    return f"{kind} {item['metadata']['name']} is left of {name}"
        return None

    def _hold_foreign(self) -> None:
        """Nobody else's object was written."""
        now = self._foreign_now()
        changed = {o: (v, now.get(o)) for o, v in self.foreign.items() if now.get(o) != v}
        assert not changed, f"somebody else's objects were touched: {changed}"

    def _hold_places(self) -> None:
        """What was not deleted by hand was never made anew, and no model on the Mac was stopped."""
        uids = {n: str(d["metadata"]["uid"]) for n, d in self.deployments().items()}
        for name, uid in uids.items():
            if name in self.uids and name not in self.touched:
                assert uid == self.uids[name], f"Deployment {name} was made anew"
        self.uids = uids
        pids = {name: i.pid for name, i in self.mac.instances().items() if i.pid}
        for name, pid in pids.items():
            if name in self.pids and name not in self.touched:
                assert pid == self.pids[name], f"{name} has another process on the Mac"
        self.pids = pids

    # How it begins

    def _begin_fleet(self, tiny: Path) -> None:
        for name in (*POOL, *MAC):
            self.declared[name] = Declared(name, self.random.choice(CONTEXTS))
        pool = {"kubernetes": {"cluster": "prod", "nodeSelector": {"pool": "edge"}, "count": 2}}
        agent = {
            "url": f"http://127.0.0.1:{self.port}",
            "hostIP": own_address(),
            "expose": "open",
            "clusters": ["prod"],
        }
        self.repo.publish(
            {
                "fleet.yaml": document("Fleet", "home", {}),
                "edge.yaml": document("FleetNode", "edge", pool | {"hardware": {"memory": "64Gi"}}),
                "mac.yaml": node("mac", agent=agent, hardware={"memory": "16Gi"}),
                "phi.yaml": model("phi", sha256="ab" * 32),
                "team-phi.yaml": document(
                    "Model",
                    "phi",
                    {"source": "https://models.test/phi.gguf", "sha256": "ab" * 32},
                    namespace=TEAM,
                ),
                "tiny.yaml": model("tiny", source=f"file://{tiny}"),
            }
        )
        self.push("Begin")

    def _make_foreign(self) -> None:
        """Another fleet, applied once, and what has nothing to do with any."""
        pool = {"cluster": "prod", "nodeSelector": {"pool": "edge"}, "count": 1}
        pool = {"kubernetes": pool, "hardware": {"memory": "8Gi"}}
        self.cluster.namespace(_FOREIGN)
        spec = {"source": "https://models.test/theirs.gguf", "sha256": "cd" * 32}
        chat = {"modelRef": "theirs", "placement": {"nodes": ["theirs"]}}
        self.other.publish(
            {
                "fleet.yaml": document("Fleet", "other", {}),
                "node.yaml": document("FleetNode", "theirs", pool),
                "model.yaml": document("Model", "theirs", spec, namespace=_FOREIGN),
                "chat.yaml": document("InferenceService", "theirs", chat, namespace=_FOREIGN),
            }
        )
        done = self.machine.reconcile("--once", "--timeout", "60s", *self._other_words)
        assert done.code == 0, done.out + done.err
        for namespace in ("default", SYSTEM):
            create = ("create", "-n", namespace)
            self.cluster.kubectl(*create, "configmap", "foreign", "--from-literal=a=b")
            self.cluster.kubectl(*create, "service", "clusterip", "foreign", "--tcp=80:80")
        self.foreign = self._foreign_now()
        assert len(self.foreign) > 6, self.foreign

    def _foreign_now(self) -> dict[str, str]:
        """All that is not the fleet's own, and stands still: object -> resourceVersion. Its
        documents go with the definitions, and are somebody's to apply again."""
        kinds = ("configmaps", "services", "deployments", "jobs", "endpointslices")
        return {
            f"{kind}/{item['metadata']['namespace']}/{item['metadata']['name']}": str(
                item["metadata"]["resourceVersion"]
            )
            for kind in kinds
            for item in self._list(kind, f"{FLEET_LABEL}!=home")
            if item["metadata"]["name"] in (_FOREIGN, "theirs", "fleet-other")
        }

    @property
    def _other_words(self) -> tuple[str, ...]:
        config = ("--kubeconfig", str(self.cluster.kubeconfig))
        return ("-C", str(self.other.remote), "--cluster", "prod=test", *config)

    def _list(self, plural: str, selector: str) -> tuple[Mapping[str, Any], ...]:
        kind = next(row for row in OWNED_KINDS.values() if row.plural == plural)
        return tuple(self.api.list(kind, selector=selector).items)

    def _one(self, plural: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        found = [o for o in self._list(plural, "") if o["metadata"]["name"] == name]
        return next((o for o in found if o["metadata"]["namespace"] == namespace), None)


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


def _proxied(kubeconfig: Path, proxy: FaultProxy, path: Path) -> Path:
    """Another account's way through the same proxy."""
    return proxy.write_kubeconfig(path, _grant(kubeconfig, None).authorization)


def _grant(kubeconfig: Path, context: str | None) -> Grant:
    api = open_cluster("prod", context, kubeconfig=kubeconfig)
    try:
        return api.grant()
    finally:
        api.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
