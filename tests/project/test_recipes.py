"""The recipes of CONTRIBUTING.md, each carried out on a copy: the files and rows that it names, and
no others. What is planted there has to work by itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Recipe:
    """`files` are new; `rows` are (file, what is there once, what comes before that). `check` is a
    program that fails where something is missing; `fleet` is a folder in it."""

    check: str
    files: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[tuple[str, str, str], ...] = ()


FLEET = {
    "node.yaml": """
        apiVersion: inference.llmkube.dev/v1alpha1
        kind: FleetNode
        metadata: {name: box}
        spec: {agent: {}, hardware: {memory: 8Gi}, runtimes: [parrot]}
        """,
    "fleet.yaml": """
        apiVersion: inference.llmkube.dev/v1alpha1
        kind: Fleet
        metadata: {name: home}
        spec: {allowedHosts: [aviary.test]}
        """,
    "model.yaml": """
        apiVersion: inference.llmkube.dev/v1alpha1
        kind: Model
        metadata: {name: tiny}
        spec: {source: "aviary://aviary.test/tiny.gguf"}
        """,
    "service.yaml": """
        apiVersion: inference.llmkube.dev/v1alpha1
        kind: InferenceService
        metadata: {name: chat}
        spec: {modelRef: tiny, runtime: parrot, placement: {nodes: [box]}}
        """,
    "flock.yaml": """
        apiVersion: inference.llmkube.dev/v1alpha1
        kind: Flock
        metadata: {name: birds}
        spec: {modelRef: tiny}
        """,
}
_VALIDATED = """
    code, text = reconcile("validate", "-C", fleet)
    assert code in (0, 1), text
    """

RECIPES = {
    "runtime": Recipe(
        files={
            "reconciler/runtimes/parrot.py": """
                from reconciler.api.meta import Spec
                from reconciler.fleet.command import Command, Probe
                from reconciler.memory import MLX
                from reconciler.runtimes.runtime import EngineProgram, Runtime


                class ParrotOptions(Spec):
                    "spec.runtimeOptions of parrot."


                def command(workload, node):
                    (model,) = workload.models
                    argv = (*node.binary, "--model", node.model_path(model), "--port", node.port)
                    return Command(argv=argv, probe=Probe())


                RUNTIME = Runtime(
                    name="parrot",
                    formats=frozenset({"gguf"}),
                    serves_many=False,
                    options=ParrotOptions,
                    engine=EngineProgram(programs=("parrot",), install_hint="hatch one"),
                    command=command,
                    memory_settings=lambda workload, model: MLX,
                    fields=frozenset(),
                )
                """
        },
        rows=(
            (
                "reconciler/runtimes/__init__.py",
                '    ("vllm", "vllm"),',
                '    ("parrot", "parrot"),\n',
            ),
        ),
        check="""
            text = reconcile("render", "-C", fleet)[1]
            assert "--model '{store}/tiny'" in text, text
            assert "parrot" in reconcile("schema", "--arguments")[1]
            """,
    ),
    "kind": Recipe(
        files={
            "reconciler/api/flock.py": """
                from typing import Annotated

                from pydantic import Field

                from reconciler.api.meta import ObjectRef, Resource, Spec


                class FlockSpec(Spec):
                    model_ref: Annotated[str, Field(description="The model that it sings.")]


                class Flock(Resource):
                    kind: str = "Flock"
                    spec: FlockSpec

                    @property
                    def references(self):
                        model = ObjectRef("Model", self.metadata.namespace, self.spec.model_ref)
                        return (("spec.modelRef", model),)
                """
        },
        rows=(
            (
                "reconciler/api/kinds.py",
                ")\nKIND_TABLE",
                '    Kind("Flock", Flock, "flocks", "flk", ()),\n',
            ),
            (
                "reconciler/api/kinds.py",
                "from reconciler.api.fleetnode import",
                "from reconciler.api.flock import Flock\n",
            ),
        ),
        check="""
            assert reconcile("validate", "-C", fleet)[0] == 0
            text = (fleet / "flock.yaml").read_text()
            (fleet / "flock.yaml").write_text(text.replace("tiny", "huge"))
            code, text = reconcile("validate", "-C", fleet)
            assert code == 1 and "DanglingReference" in text, text
            """,
    ),
    "source scheme": Recipe(
        files={
            "reconciler/models/aviary.py": """
                from urllib.parse import urlsplit

                from reconciler.models.scheme import Scheme


                def _fetch(request):
                    raise AssertionError("nothing is fetched here")


                def _hosts(source):
                    return (urlsplit(source).hostname,)


                SCHEME = Scheme("aviary", lambda source: None, _hosts, _fetch)
                """
        },
        rows=(
            (
                "reconciler/models/sources.py",
                '        "": REPOSITORY,',
                '        "aviary": AVIARY,\n',
            ),
            (
                "reconciler/models/sources.py",
                "from reconciler.models.beside import",
                "from reconciler.models.aviary import SCHEME as AVIARY\n",
            ),
        ),
        check="""
            assert reconcile("validate", "-C", fleet)[0] == 0
            text = (fleet / "fleet.yaml").read_text()
            (fleet / "fleet.yaml").write_text(text.replace("aviary.test", "elsewhere.test"))
            code, text = reconcile("validate", "-C", fleet)
            assert code == 1 and "aviary.test" in text, text
            text = (fleet / "model.yaml").read_text()
            (fleet / "model.yaml").write_text(text.replace("aviary:", "zoo:"))
            code, text = reconcile("validate", "-C", fleet)
            assert "aviary://" in text, text
            """,
    ),
    "validation rule": Recipe(
        rows=(
            (
                "reconciler/api/problem.py",
                '    Rule("YamlSyntax"',
                '    Rule("Quiet", Severity.WARNING, "A name that is whispered."),\n',
            ),
            ("reconciler/source/rules.py", "    equal_names,\n    memory", "    quiet,\n"),
            (
                "reconciler/source/rules.py",
                "CHECKS: tuple[Check, ...] = (\n",
                "def quiet(thing):\n"
                '    if thing.metadata.name == "chat":\n'
                '        yield Finding("Quiet", thing.ref, "metadata.name", "speak up")\n\n\n',
            ),
        ),
        check="""
            code, text = reconcile("validate", "-C", fleet)
            assert code == 0 and "speak up" in text and "service.yaml:" in text, text
            code, text = reconcile("validate", "-C", fleet, "-o", "sarif")
            assert "A name that is whispered." in text, text
            """,
    ),
    "reason": Recipe(
        rows=(
            (
                "reconciler/api/reasons.py",
                '        "Added": ',
                '        "Moulting": "it grows new feathers",\n',
            ),
        ),
        check="""
            assert "Moulting" in (schemas / "plan.json").read_text()
            """,
    ),
    "memory law": Recipe(
        files={
            "reconciler/memory/parrot.py": """
                from reconciler.memory.facts import MemoryEstimate


                def estimate_parrot(facts, settings):
                    return MemoryEstimate(facts.file_bytes, 0, 0, 0, 0, 0, 0, True, ())
                """
        },
        rows=(
            (
                "reconciler/memory/__init__.py",
                "\n__all__",
                "from reconciler.memory.parrot import estimate_parrot\n",
            ),
            (
                "reconciler/memory/__init__.py",
                '"vllm": estimate_vllm',
                '"parrot": estimate_parrot, ',
            ),
            ("reconciler/memory/facts.py", '"vllm"] = "llama.cpp"', '"parrot", '),
        ),
        check="""
            from dataclasses import replace
            from reconciler.memory import MLX, ModelFacts, estimate
            facts = ModelFacts("bird", 4096, 4096, 0, 1, 0, {})
            assert estimate(facts, replace(MLX, engine="parrot")).total_bytes == 4096
            """,
    ),
    "fact that an agent reports": Recipe(
        rows=(
            (
                "reconciler/api/nodestate.py",
                '    gone: Annotated[bool, Field(description="It should run',
                "    songs: Whole | None = None\n",
            ),
            (
                "reconciler/core/observation.py",
                "    gone: bool = False  # it should run",
                "    songs: int | None = None\n",
            ),
            (
                "reconciler/report/instancestate.py",
                "        start_seconds=instance.start_seconds,\n        tokens",
                "        songs=instance.songs,\n",
            ),
            (
                "reconciler/report/instancestate.py",
                "        gone=instance.gone,\n        drifts",
                "        songs=instance.songs,\n",
            ),
            (
                "agent/cluster/status.py",
                '        "gone": instance.gone or None,',
                '        "songs": instance.songs,\n',
            ),
            (
                "reconciler/kube/crd/status.py",
                '        "gone": _is("It should run',
                '        "songs": _is("How many it sang.", _NUMBER),\n',
            ),
            (
                "reconciler/kube/crsource/nodes.py",
                '        "gone": entry.get("gone") is True,',
                '        "songs": entry.get("songs"),\n',
            ),
        ),
        check="""
            from agent.cluster.status import instance_entry
            from reconciler.api.meta import ObjectRef
            from reconciler.api.nodestate import InstanceState
            from reconciler.core.observation import Instance
            from reconciler.kube.crsource.nodes import _instance
            from reconciler.report.instancestate import instance_state, read_instance
            ref = ObjectRef("InferenceService", "default", "chat")
            sang = Instance(ref, "node/box", "parrot", {}, "0", None, None, True, "Ready", songs=3)
            wire = instance_state(sang, None, None).model_dump_json(by_alias=True)
            assert read_instance(InstanceState.model_validate_json(wire), "node/box").songs == 3
            assert _instance(ref, instance_entry(sang, "box", "r1"), None)["songs"] == 3
            assert '"songs"' in (schemas / "nodestate.json").read_text()
            """,
    ),
    "metric": Recipe(
        rows=(
            (
                "reconciler/metrics/table.py",
                '    _gauge("fleet_is_leader"',
                '    _gauge("fleet_songs", "bird", "Songs by bird."),\n',
            ),
            (
                "reconciler/kube/server/metrics.py",
                '    yield _one("fleet_is_leader"',
                '    yield family(RECONCILER["fleet_songs"], [(("parrot",), 3.0)])\n',
            ),
        ),
        check="""
            from reconciler.kube.server.board import Board, Role
            from reconciler.kube.server.metrics import collect
            from reconciler.metrics.exposition import exposition
            board = Board(lambda: Role(True))
            text = exposition(lambda: collect(board), "")[0].decode()
            assert 'fleet_songs{bird="parrot"} 3.0' in text, text
            """,
    ),
    "command": Recipe(
        files={
            "reconciler/cli/sing.py": '''
                """Sing."""

                EXAMPLES = {}


                def add_options(parser):
                    parser.add_argument("song")


                def run(args):
                    print(args.song)
                    return 0
                '''
        },
        rows=(
            (
                "reconciler/cli/commands.py",
                '        "demo": CommandRow(',
                '"sing": CommandRow("sing a song"),\n',
            ),
        ),
        check="""
            assert reconcile("sing", "la") == (0, "la\\n")
            assert "sing a song" in reconcile("--help")[1]
            """,
    ),
    "option": Recipe(
        rows=(
            (
                "agent/cli/run.py",
                '    Option("log-level"',
                '    Option("song", "what it sings (default: la)", "SONG", fallback="la"),\n',
            ),
        ),
        check="""
            import argparse, os
            from agent.cli import run
            parser = argparse.ArgumentParser()
            run.add_options(parser)
            parser.add_argument("--state-dir")
            assert parser.parse_args([]).song == "la"
            typed = parser.parse_args(["--song", "lo"])
            assert "--song lo" in " ".join(run.run_arguments(typed))
            """,
    ),
    "contributor": Recipe(
        files={
            "reconciler/kube/contributors/songs.py": '''
                from reconciler.kube.contribution import Contribution
                from reconciler.kube.object_set import ObjectSet
                from reconciler.kube.objects import id_of

                NAME = {"name": "song", "namespace": "default"}
                SONG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": NAME}


                def contribute_songs(planning):
                    """It removes nothing."""
                    return Contribution(wanted=ObjectSet({id_of(SONG): SONG}))
                '''
        },
        rows=(
            (
                "reconciler/kube/contributors/__init__.py",
                "    PureContributor(contribute_services),",
                "    PureContributor(contribute_songs),\n",
            ),
            (
                "reconciler/kube/contributors/__init__.py",
                "\nCONTRIBUTORS: ",
                "from reconciler.kube.contributors.songs import contribute_songs\n",
            ),
        ),
        check="""
            from reconciler.kube.contribution import fold
            from reconciler.kube.contributors import CONTRIBUTORS
            from reconciler.kube.contributors.songs import SONG
            from reconciler.kube.objects import id_of
            ours = [c.observe(None, None, None) for c in CONTRIBUTORS]
            made = [each(None) for each in ours if each.__name__ == "contribute_songs"]
            assert id_of(SONG) in fold(made).members
            """,
    ),
    "vendor of accelerators": Recipe(
        files={
            "agent/machine/habana.py": """
                from agent.machine.driver import Driver
                from reconciler.api.fleetnode import Device

                GAUDI = Device(vendor="Habana", arch="gaudi2", memory=2**36)
                DRIVER = Driver(devices=lambda machine: [GAUDI])
                """
        },
        rows=(
            ("agent/machine/drivers.py", "amd.DRIVER)", "habana.DRIVER, "),
            (
                "agent/machine/drivers.py",
                "from agent.machine import amd",
                "from agent.machine import habana\n",
            ),
            (
                "reconciler/api/vendors.py",
                '        "Intel": Vendor(',
                '        "Habana": Vendor("gaudi", 0x1DA3, "habana.ai/gaudi", only_computes=True,'
                ' variables=("HABANA_VISIBLE_DEVICES",)),\n',
            ),
            ("reconciler/api/vendors.py", '"vulkan"]', '"gaudi", '),
            (
                "agent/labels/vendors.py",
                '        "Intel": VendorLabels(',
                '        "Habana": VendorLabels(int4=lambda arch: arch == "gaudi2"),\n',
            ),
        ),
        check="""
            from agent.labels.deciding import decide
            from agent.labels.facts import Facts
            from agent.machine.devices import devices
            from agent.machine.machine import Machine
            from agent.machine.pci import pci_gpus
            from agent.process.spawn import INHERITED
            from reconciler.api.fleetnode import FleetNode
            from reconciler.api.meta import API_VERSION
            from reconciler.api.model import ModelHardware
            from reconciler.api.vendors import resource_of, vendor_of
            from reconciler.placement.pods import accelerator_of
            card = fleet / "sys/bus/pci/devices/0000:01:00.0"
            card.mkdir(parents=True)
            for name, text in {"class": "0x120000", "vendor": "0x1da3", "device": "0x1020"}.items():
                (card / name).write_text(text)
            assert [gpu.vendor for gpu in pci_gpus(fleet)] == ["Habana"]
            assert "HABANA_VISIBLE_DEVICES" in INHERITED
            assert vendor_of("habana.ai/gaudi") == "Habana"
            assert ModelHardware(accelerator="gaudi").accelerator == "gaudi"
            found = devices("linux", Machine(fleet, lambda *words: None, lambda: None))
            assert decide(Facts(devices=found)).labels.int4 is True
            hardware = {"devices": [{"vendor": "Habana", "memory": 2**36}]}
            spec = {"hardware": hardware, "kubernetes": {}}
            named = {"apiVersion": API_VERSION, "kind": "FleetNode", "metadata": {"name": "pool"}}
            node = FleetNode.model_validate({**named, "spec": spec})
            assert resource_of(accelerator_of(node)) == "habana.ai/gaudi"
            """,
    ),
    "listener": Recipe(
        files={
            "reconciler/cli/songs.py": """
                from reconciler.loop import Listener


                class Songs(Listener):
                    def on_followed(self, desired):
                        print("follows", desired.fleet.revision)
                """
        },
        rows=(
            (
                "reconciler/cli/central.py",
                "            (fleet, console, *listeners),",
                "            # planted\n",
            ),
            ("reconciler/cli/central.py", "fleet, console, *listeners", "Songs(), "),
            (
                "reconciler/cli/central.py",
                "from reconciler.cli.overrides import",
                "from reconciler.cli.songs import Songs\n",
            ),
        ),
        check="""
            code, text = reconcile("-C", fleet, "--once", "--timeout", "1s", "--allow-unreachable")
            assert text.startswith("follows "), text
            """,
    ),
}
_RUNNER = """
import contextlib, io, json, shutil, sys, tempfile, traceback
from pathlib import Path


def reconcile(*words):
    from reconciler.cli import main
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main([str(word) for word in words])
    return int(code), out.getvalue()


code, text = reconcile("schema", "--to", "schemas")  # as `make schemas` does
assert code == 0, text
found = {}
for name, check in json.load(sys.stdin).items():
    with tempfile.TemporaryDirectory() as folder:
        fleet = Path(shutil.copytree("fleet", Path(folder) / "fleet"))
        try:
            exec(check, {"fleet": fleet, "reconcile": reconcile, "schemas": Path("schemas")})
        except BaseException:
            found[name] = traceback.format_exc()
        else:
            found[name] = ""
json.dump(found, sys.__stdout__)
"""


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Recipe -> what went wrong in a copy in which all of them were carried out."""
    copy = tmp_path_factory.mktemp("recipes")
    for room in ("reconciler", "agent"):
        shutil.copytree(REPOSITORY / room, copy / room)
    for recipe in RECIPES.values():
        for path, text in recipe.files.items():
            (copy / path).write_text(dedent(text).lstrip())
        for path, place, row in recipe.rows:
            text = (copy / path).read_text()
            assert text.count(place) == 1, (path, place)
            (copy / path).write_text(text.replace(place, row + place))
    (copy / "fleet").mkdir()
    for name, text in FLEET.items():
        (copy / "fleet" / name).write_text(dedent(text))

    run = subprocess.run(
        [sys.executable, "-c", _RUNNER],
        input=json.dumps({name: dedent(recipe.check) for name, recipe in RECIPES.items()}),
        cwd=copy,
        env={"HOME": str(copy), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.stdout, run.stderr
    found: dict[str, str] = json.loads(run.stdout)
    return found


@pytest.mark.e2e
@pytest.mark.parametrize("name", RECIPES)
def test_what_a_recipe_adds_works_and_needs_nothing_else(
    name: str, carried_out: Mapping[str, str]
) -> None:
    assert carried_out[name] == ""


def test_every_recipe_has_its_paragraph() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()

    named = re.findall(r"^\*\*An? ([a-z ]+)\*\*", text, flags=re.MULTILINE)

    assert set(RECIPES) - set(named) == set()
