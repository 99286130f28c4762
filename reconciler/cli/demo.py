"""Serve a small real model twice, to chat and to search, from a private copy of the example fleet.

On a terminal it then follows the copy's files until Ctrl-C, which stops what it started. Without a
terminal it asks both one question, prints the answers, stops everything and exits 0.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.api.errors import StateError, words_of
from reconciler.cli.options import add_fleet_options, add_node_options
from reconciler.console.edge import Exit, Parser, tell
from reconciler.console.option import add
from reconciler.console.shared import OFFLINE
from reconciler.report.terminal import Tone

if TYPE_CHECKING:
    from reconciler.cli.console import Screen
    from reconciler.core.observation import Instance
    from reconciler.core.plan import Plan

_NODE = "laptop"
_CHAT, _SEARCH = "default/chat", "default/search"
_QUESTION = "What is the capital of France?"
# The model of the example completes text and was not taught to chat: this form it answers.
_PROMPT = "Question: {question}\nAnswer:"
_ANSWER_DEADLINE_S = 120.0
_DEADLINE_S = 900.0  # without a terminal: 240 MB over a slow line, and an answer


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
    from agent.node.local import state_root
    from reconciler.cli.serve import ServeOptions, serve

    root = (
        Path(args.state_dir)
        if args.state_dir
        else state_root(None).with_name("fleet-reconciler-demo")
    )
    root = root.expanduser().absolute()
    fleet = private_copy(root / "fleet", fresh=args.fresh)
    follows = sys.stdin.isatty() and sys.stdout.isatty()
    usual = Parser()
    add_fleet_options(usual)
    words = argparse.Namespace(
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
        }
    )
    demo = _Demo(fleet, follows)
    deadline_s = None if follows else _DEADLINE_S
    service = ServeOptions(
        on_ready=demo.ready,
        is_hopeless=demo.is_hopeless,
        ends_refused=not follows,
        deadline_s=deadline_s,
    )
    code = serve(words, service)
    return demo.code(code)


def private_copy(folder: Path, *, fresh: bool) -> Path:
    """The example fleet, to play with. An earlier copy is kept with its edits, unless `fresh`."""
    try:
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            half = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(example_fleet(), half)
            half.replace(folder)
    except OSError as error:
        raise StateError(
            f"{folder}: the example cannot be copied there: {words_of(error, folder)}"
        ) from error
    return folder


def example_fleet() -> Path:
    """The example that ships with this program: beside the code, or inside the wheel."""
    package = Path(str(files("reconciler")))
    checkout = package.parent / "fleet-example"
    return checkout if checkout.is_dir() else package / "data" / "fleet-example"


class _Demo:
    """What the demo does once its services answer."""

    def __init__(self, fleet: Path, follows: bool) -> None:
        self._fleet = fleet
        self._follows = follows
        self._ready: dict[str, Instance] = {}
        self._blocked: frozenset[str] = frozenset()
        self._screen: Screen | None = None
        self._answered = False

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
            self._answered = True
            return False
        screen.out(f"> {_QUESTION}\n")
        try:
            for service in there:
                screen.out(f"{service.ref.name}: {ask(service, _QUESTION)}\n")
            self._answered = True
        except StateError as error:
            screen.say(str(error), Tone.BAD)
        return True

    def is_hopeless(self, plan: Plan) -> bool:
        """Whether nothing that it still waits for may start: the plan says why."""
        held = (ref.label for item in plan.blocked for ref in (item.ref, *item.holds))
        self._blocked = frozenset(held)
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

    def _invitation(self, services: Sequence[Instance]) -> str:
        curls = "".join(map(_curl, services))
        return (
            f"\nTalk to {'them' if len(services) > 1 else 'it'}:\n{curls}\n"
            f"Or edit {self._fleet}/services/chat.yaml, for instance its contextSize, and watch\n"
            "the change be planned and applied. Ctrl-C stops everything.\n"
        )


def _curl(instance: Instance) -> str:
    way = _ASK[instance.ref.label]
    body = json.dumps(way.body(instance, "What is the capital of Japan?"))
    return f"  curl {instance.endpoint}{way.path} -d '{body}'\n"


def ask(instance: Instance, question: str) -> str:
    """The service's answer, one line. Raises StateError when it gives none."""
    import urllib.request

    way = _ASK[instance.ref.label]
    request = urllib.request.Request(  # noqa: S310 - the address is our own, http on loopback
        f"{instance.endpoint}{way.path}",
        json.dumps(way.body(instance, question)).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_DEADLINE_S) as answer:  # noqa: S310
            return way.shown(json.load(answer))
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise StateError(
            f"{instance.ref.label} is ready and gave no answer: {words_of(error)}"
        ) from error


def _completion_body(instance: Instance, question: str) -> dict[str, Any]:
    return {
        "model": instance.models[0],
        "prompt": _PROMPT.format(question=question),
        "max_tokens": 32,
        "temperature": 0,
        "stop": ["\n"],
    }


def _embedding_body(instance: Instance, question: str) -> dict[str, Any]:
    return {"model": instance.models[0], "input": question}


def _text(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["text"]).strip()


def _vector(answer: dict[str, Any]) -> str:
    """Too long to read: how it begins."""
    vector = answer["data"][0]["embedding"]
    begins = " ".join(f"{number:.3f}" for number in vector[:4])
    return f"a vector of {len(vector)} numbers, {begins} ..."


@dataclass(frozen=True, slots=True)
class _Way:
    """How a service is asked, and what of its answer is shown."""

    path: str
    body: Callable[[Instance, str], dict[str, Any]]
    shown: Callable[[dict[str, Any]], str]


_ASK = {
    _CHAT: _Way("/v1/completions", _completion_body, _text),
    _SEARCH: _Way("/v1/embeddings", _embedding_body, _vector),
}
