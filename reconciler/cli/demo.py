"""Serve a small real model from a private copy of the example fleet.

On a terminal it then follows the copy's files until Ctrl-C, which stops what it started. Without a
terminal it asks one question, prints the answer, stops everything and exits 0.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.cli.options import add_node_options
from reconciler.edge import Exit
from reconciler.errors import StateError
from reconciler.report.terminal import Tone

if TYPE_CHECKING:
    from reconciler.cli.console import Screen
    from reconciler.plan import Instance

_NODE = "laptop"
_SERVICE = "default/chat"
_QUESTION = "What is the capital of France?"
# The model of the example completes text and was not taught to chat: this form it answers.
_PROMPT = "Question: {question}\nAnswer:"
_ANSWER_DEADLINE_S = 120.0
_DEADLINE_S = 900.0  # without a terminal: 240 MB over a slow line, and an answer


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fresh", action="store_true", help="begin with a new copy of the example")
    add_node_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the model answered, 1 or 3 when it could not, 130 after Ctrl-C before that."""
    from agent.local import state_root
    from reconciler.cli.serve import Service, serve

    root = (
        Path(args.state_dir)
        if args.state_dir
        else state_root(None).with_name("fleet-reconciler-demo")
    )
    root = root.expanduser().absolute()
    fleet = private_copy(root / "fleet", fresh=args.fresh)
    follows = sys.stdin.isatty() and sys.stdout.isatty()
    words = argparse.Namespace(
        **vars(args)
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
    code = serve(words, Service(on_ready=demo.ready, deadline_s=deadline_s))
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
        raise StateError(f"{folder}: the example cannot be copied there: {error}") from error
    return folder


def example_fleet() -> Path:
    """The example that ships with this program: beside the code, or inside the wheel."""
    package = Path(str(files("reconciler")))
    checkout = package.parent / "fleet-example"
    return checkout if checkout.is_dir() else package / "data" / "fleet-example"


class _Demo:
    """What the demo does once its model answers."""

    def __init__(self, fleet: Path, follows: bool) -> None:
        self._fleet = fleet
        self._follows = follows
        self._answered = False

    def ready(self, instance: Instance, screen: Screen) -> bool:
        """Say how to talk to it; without a terminal, ask by itself, and True: that was all."""
        screen.say(f"{instance.ref.label}  ready at {instance.endpoint}", Tone.GOOD)
        if instance.ref.label != _SERVICE or self._answered:
            return False
        if self._follows:
            screen.say(self._invitation(instance))
            self._answered = True
            return False
        try:
            screen.out(f"> {_QUESTION}\n{ask(instance, _QUESTION)}\n")
            self._answered = True
        except StateError as error:
            screen.say(str(error), Tone.BAD)
        return True

    def code(self, code: int) -> int:
        """Ctrl-C after it answered is how the demo ends: nothing went wrong."""
        if self._answered:
            return Exit.OK
        print("the demo ends without an answer", file=sys.stderr)
        return code or Exit.BLOCKED

    def _invitation(self, instance: Instance) -> str:
        body = json.dumps(_body(instance, "What is the capital of Japan?"))
        return (
            "\nTalk to it:\n"
            f"  curl {instance.endpoint}/v1/completions -d '{body}'\n\n"
            f"Or edit {self._fleet}/services/chat.yaml, for instance its contextSize, and watch\n"
            "the change be planned and applied. Ctrl-C stops everything.\n"
        )


def ask(instance: Instance, question: str) -> str:
    """The model's answer, one line. Raises StateError when it gives none."""
    import urllib.request

    request = urllib.request.Request(  # noqa: S310 - the address is our own, http on loopback
        f"{instance.endpoint}/v1/completions",
        json.dumps(_body(instance, question)).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_DEADLINE_S) as answer:  # noqa: S310
            return str(json.load(answer)["choices"][0]["text"]).strip()
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise StateError(f"{instance.ref.label} is ready and gave no answer: {error}") from error


def _body(instance: Instance, question: str) -> dict[str, Any]:
    return {
        "model": instance.models[0],
        "prompt": _PROMPT.format(question=question),
        "max_tokens": 32,
        "temperature": 0,
        "stop": ["\n"],
    }
