"""The commands of `fleet-agent`, a row each. A command's module is imported when it is asked for,
and imports the agent when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.console.command import OF_OTHER_PROGRAMS, TEXT_OR_JSON, CommandRow, other_names

COMMANDS: Mapping[str, CommandRow] = MappingProxyType(
    {
        "accept": CommandRow("follow a head of the fleet's branch that is held"),
        "run": CommandRow(
            "be this machine's agent: follow the fleet and keep its services running",
            also_called=("up", "serve", "daemon", "sync"),
        ),
        "restart": CommandRow(
            "restart services, also what was stopped by hand", also_called=("start", "reload")
        ),
        "install": CommandRow("make the agent a service of this machine"),
        "uninstall": CommandRow("take that service away again, and stop what it runs"),
        "fetch": CommandRow(
            "bring models here ahead of time",
            formats=TEXT_OR_JSON,
            also_called=("pull", "download"),
        ),
        "store": CommandRow(
            "list, verify, import and remove the models that are here", formats=TEXT_OR_JSON
        ),
        "pod": CommandRow(
            "in a pod, beside an engine: fetch its models, wait for them, say when it is ready",
            serves=True,
        ),
        "doctor": CommandRow(
            "say whether the engines of this machine run, with a tiny model and no download",
            formats=TEXT_OR_JSON,
        ),
        "label": CommandRow(
            "keep this machine's Node in a cluster labelled with its hardware", serves=True
        ),
        "bench": CommandRow(
            "measure how fast the models that run here answer",
            formats=TEXT_OR_JSON,
            also_called=("benchmark", "measure"),
        ),
        "probe": CommandRow("print this machine as a FleetNode", formats=TEXT_OR_JSON),
        "status": CommandRow(
            "what this machine's records say, and whether it answers",
            formats=TEXT_OR_JSON,
            also_called=("get", "ps", "list", "ls", "info", "services", "is-active"),
        ),
        "leftovers": CommandRow(
            "what else of ours runs on this machine, and the command that ends it",
            formats=TEXT_OR_JSON,
        ),
        "logs": CommandRow(
            "print what a service's engine writes",
            formats=TEXT_OR_JSON,
            also_called=("log", "tail", "journal", "journalctl"),
        ),
        "stop": CommandRow(
            "drain and stop services that were started here", also_called=("down", "kill")
        ),
    }
)
_OF_RECONCILE = (
    *("validate", "explain", "render", "deploy", "schema", "init", "ask", "open", "top", "events"),
    *("suspend", "resume", "comment", "completion", "demo", "extender"),
)


def foreign_names() -> Mapping[str, str]:
    """What other tools, and the other program, call it -> what does that here."""
    return {
        **OF_OTHER_PROGRAMS,
        **other_names(COMMANDS),
        **dict.fromkeys(("plan", "diff"), "reconcile plan --local"),
        **{word: f"reconcile {word} --local" for word in ("apply", "watch", "follow")},
        **dict.fromkeys(("chat", "query", "prompt", "generate", "exec"), "reconcile ask"),
        **dict.fromkeys(("rm", "remove", "delete"), "reconcile rm or fleet-agent store rm"),
        **dict.fromkeys(("describe", "show", "inspect"), "reconcile explain"),
        "enable": "fleet-agent install",
        "disable": "fleet-agent uninstall",
        **{word: f"fleet-agent --{word}" for word in ("version", "help")},
        **{word: f"reconcile {word}" for word in _OF_RECONCILE},
    }
