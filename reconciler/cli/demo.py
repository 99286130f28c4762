"""Serve a small real model twice, to chat and to search, from a private copy of the example fleet.

On a terminal it then follows the copy's files until Ctrl-C, which stops what it started. Without a
terminal it asks both one question, prints the answers, stops everything and exits 0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import AgentError, EngineError, StateError, error_text
from reconciler.cli.options import add_fleet_options, add_node_options
from reconciler.console.edge import Exit, tell
from reconciler.console.option import add, programs_of
from reconciler.console.parser import Parser
from reconciler.console.shared import OFFLINE
from reconciler.console.value import PortRange
from reconciler.report.terminal import Tone

if TYPE_CHECKING:
    from reconciler.cli.console import Screen
    from reconciler.core.observation import Instance
    from reconciler.core.plan import Plan

_PORTS = 20  # of one demo
_NODE = "laptop"
_CHAT, _SEARCH = "default/chat", "default/search"
# What the example's model answers well at its usual temperature: none of the ways that its first
# words may go leads elsewhere, on either engine (tests/e2e/test_first_model.py asks both). "What is
# the capital of France?" goes wrong four times in ten.
QUESTION = "Fill in the word: The capital of France is ..."
_TOKENS = 32
_WIDTH = 54  # of JSON to paste: with what is before it no more than 60 columns
_ANSWER_DEADLINE_S = 120.0
_DEADLINE_S = 900.0  # without a terminal: 94 MiB over a slow line, and an answer


EXAMPLES = {
    "reconcile demo": "with the copy as you left it",
    "reconcile demo --fresh": "with a new one",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fresh", action="store_true", help="begin with a new copy of the example")
    add(parser, (OFFLINE,))
    add_node_options(parser)
    parser.set_defaults(runtime=None, runtimes=None, host_ip=None)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the model answered, 1 or 3 when it could not, 130 after Ctrl-C before that."""
    from agent.state.directory import state_root
    from reconciler.cli.serve import ServeOptions, serve

    root = (
        state_root(args.state_dir)
        if args.state_dir
        else state_root(None).with_name("fleet-reconciler-demo")
    )
    missing = without_engine(programs_of(args))
    fleet = private_copy(root / "fleet", fresh=args.fresh, without=missing)
    follows = sys.stdin.isatty() and sys.stdout.isatty()
    usual = Parser()
    add_fleet_options(usual)
    options = argparse.Namespace(
        **vars(usual.parse_args([]))
        | vars(args)
        | {
            "fleet": str(fleet),
            "local": _NODE,
            "watch": True,
            "once": False,
            "stop_on_exit": True,
            "confirm": [],
            "state_dir": str(root / "state"),
            "service_ports": ports_of(root, args.service_ports),
        }
    )
    left_out = {name: why for name, why in missing.items() if not (fleet / name).exists()}
    demo = _Demo(fleet, follows, left_out)
    deadline_s = None if follows else _DEADLINE_S
    service = ServeOptions(
        on_ready=demo.ready,
        is_hopeless=demo.is_hopeless,
        ends_refused=not follows,
        deadline_s=deadline_s,
        on_page=demo.page if follows else None,
    )
    code = serve(options, service)
    return demo.code(code)


def ports_of(root: Path, among: PortRange) -> PortRange:
    """A part of the range that depends on the demo's folder: all demos have the same names of node
    and services, and two may run at once."""
    parts = max((among.last - among.first + 1) // _PORTS, 1)
    part = int.from_bytes(hashlib.sha256(str(root).encode()).digest()[:8], "big") % parts
    first = among.first + part * _PORTS
    return PortRange(first, min(first + _PORTS - 1, among.last))


def private_copy(folder: Path, *, fresh: bool, without: Iterable[str] = ()) -> Path:
    """The example fleet, to play with, without these of its services' files. An earlier copy is
    kept with its edits, unless `fresh`."""
    try:
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            half = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(example_fleet(), half)
            for name in without:
                (half / name).unlink()
            half.replace(folder)
    except OSError as error:
        raise StateError(
            f"{folder}: the example cannot be copied there: {error_text(error, folder)}"
        ) from error
    return folder


def without_engine(programs: Mapping[str, str]) -> dict[str, str]:
    """The example's files for this machine that it has no program for, each with how to get it. Not
    those that the demo is about: without them it has to say why."""
    from agent.engines.engine import find_engine
    from reconciler.api.fleetnode import FleetNode
    from reconciler.api.inferenceservice import InferenceService
    from reconciler.api.meta import ObjectRef
    from reconciler.placement.candidate import runtime_of
    from reconciler.source.directory import DirectorySource
    from reconciler.source.load import reader

    fleet = reader()(DirectorySource(example_fleet()).fetch(), frozenset()).fleet
    assert fleet is not None, "the example is valid: a test holds that"
    node = fleet.get(FleetNode, ObjectRef("FleetNode", "", _NODE))
    assert node is not None
    missing = {}
    for service in fleet.all(InferenceService):
        if _NODE in service.spec.placement.nodes and service.ref.label not in _ASK:
            try:
                find_engine(runtime_of(service, node), programs)
            except EngineError as error:
                missing[fleet.origins[service.ref].path] = str(error)
    return missing


def example_fleet() -> Path:
    """The example that ships with this program: beside the code, or inside the wheel."""
    package = Path(str(files("reconciler")))
    checkout = package.parent / "fleet-example"
    return checkout if checkout.is_dir() else package / "data" / "fleet-example"


class _Demo:
    """What the demo does once its services answer."""

    def __init__(self, fleet: Path, follows: bool, left_out: Mapping[str, str]) -> None:
        self._fleet = fleet
        self._left_out = left_out
        self._follows = follows
        self._ready: dict[str, Instance] = {}
        self._blocked: frozenset[str] = frozenset()
        self._screen: Screen | None = None
        self._answered = False
        self._page = ""

    def ready(self, instance: Instance, screen: Screen) -> bool:
        """Say how to talk to it; without a terminal, ask by itself, and True: that was all."""
        screen.say(f"{instance.ref.label}  ready at {instance.endpoint}", Tone.GOOD)
        self._ready[instance.ref.label] = instance
        self._screen = screen
        return self._is_over(screen)

    def _is_over(self, screen: Screen) -> bool:
        """Once all that may come has come: talk to what is there."""
        if self._answered or not self._expected() <= self._ready.keys() | self._blocked:
            return False
        there = [self._ready[label] for label in _ASK if label in self._ready]
        if self._follows:
            screen.say(self._invitation(there))
            self._say_left_out(screen)
            self._answered = True
            return False
        screen.out(f"> {QUESTION}\n")
        try:
            for service in there:
                screen.out(f"{service.ref.name}: {ask(service)}\n")
            self._answered = True
        except StateError as error:
            screen.say(str(error), Tone.BAD)
        self._say_left_out(screen)
        return True

    def page(self, url: str) -> None:
        """The node's page is served there."""
        self._page = url

    def is_hopeless(self, plan: Plan) -> bool:
        """Whether nothing that it still waits for may start: the plan says why."""
        blocked = (ref.label for item in plan.blocked for ref in (item.ref, *item.holds))
        self._blocked = frozenset(blocked)
        if self._screen is None:
            return self._expected() <= self._blocked
        return self._is_over(self._screen)

    def code(self, code: int) -> int:
        """Ctrl-C after it answered is how the demo ends: nothing went wrong."""
        if self._answered:
            return Exit.OK
        tell("the demo ends without an answer")
        return code or Exit.BLOCKED

    def _expected(self) -> set[str]:
        """Those that the copy declares: it is kept from demo to demo, and may be an older one."""
        files = self._fleet / "services"
        return {label for label in _ASK if (files / f"{Path(label).name}.yaml").is_file()}

    def _say_left_out(self, screen: Screen) -> None:
        for name, why in self._left_out.items():
            screen.say(f"left out: {name}: {why}; then `reconcile demo --fresh` has it too")

    def _invitation(self, services: Sequence[Instance]) -> str:
        curls = "".join(map(_curl, services))
        page = f"See it in a browser: {self._page}\n" if self._page else ""
        return (
            f"\nTalk to {'them' if len(services) > 1 else 'it'}, or give a client the base_url:\n"
            f"{curls}\n"
            f"{page}"
            "It is about the smallest model that chats: often wrong.\n"
            f"Or edit {self._fleet}/services/chat.yaml,\n"
            "for instance its contextSize, and watch the change\n"
            "be planned and applied. Ctrl-C stops everything.\n"
        )


def _curl(instance: Instance) -> str:
    """To paste into a shell. A JSON text may go over several lines, which no terminal breaks."""
    way = _ASK[instance.ref.label]
    body = "\n    ".join(_lines(way.body(instance)))
    return (
        f"  {instance.ref.name}: base_url {instance.endpoint}/v1\n"
        f"  curl {instance.endpoint}{way.path} -d '\n    {body}'\n"
    )


def _lines(body: Mapping[str, Any]) -> list[str]:
    """A JSON text in lines that a narrow terminal shows whole: broken between its tokens."""
    lines = [""]
    for token in json.JSONEncoder().iterencode(body):
        if len(lines[-1]) + len(token) > _WIDTH and token[0] not in ",:]}":
            lines.append("")
        lines[-1] += token
    return [line.strip() for line in lines]


def ask(instance: Instance) -> str:
    """The service's answer, one line. Raises StateError when it gives none."""
    from reconciler.cli.answers import ServiceClient, post_to

    way = _ASK[instance.ref.label]
    endpoint = str(instance.endpoint)
    try:
        client = ServiceClient(endpoint, post_to(endpoint, _ANSWER_DEADLINE_S))
        return way.shown(client.ask(way.path, way.body(instance)))
    except (AgentError, KeyError, IndexError) as error:
        raise StateError(
            f"{instance.ref.label} is ready and gave no answer: {error_text(error)}"
        ) from error


def _chat_body(instance: Instance) -> dict[str, Any]:
    return {
        "model": instance.models[0],
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": _TOKENS,
    }


def _embedding_body(instance: Instance) -> dict[str, Any]:
    return {"model": instance.models[0], "input": "a cat on a mat"}


def _text(answer: dict[str, Any]) -> str:
    return " ".join(str(answer["choices"][0]["message"]["content"]).split())


def _vector(answer: dict[str, Any]) -> str:
    """Too long to read: how it begins."""
    vector = answer["data"][0]["embedding"]
    begins = " ".join(f"{number:.3f}" for number in vector[:4])
    return f"a vector of {len(vector)} numbers, {begins} ..."


@dataclass(frozen=True, slots=True)
class _Way:
    """How a service is asked, and what of its answer is shown."""

    path: str
    body: Callable[[Instance], dict[str, Any]]
    shown: Callable[[dict[str, Any]], str]


_ASK = {
    _CHAT: _Way("/v1/chat/completions", _chat_body, _text),
    _SEARCH: _Way("/v1/embeddings", _embedding_body, _vector),
}
