"""The commands of `reconcile`, a row each. The module of one is imported when it is asked for:
`reconcile --help` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.console.command import (
    OF_OTHER_PROGRAMS,
    PLAN_FORMATS,
    TEXT_OR_JSON,
    CommandRow,
    other_names,
)

COMMANDS: Mapping[str, CommandRow] = MappingProxyType(
    {
        "init": CommandRow(
            "write the first fleet of this machine, with a model that is on it",
            also_called=("setup",),
        ),
        "plan": CommandRow(
            "say what would happen, and do nothing",
            formats=PLAN_FORMATS,
            makes_no_garbage=True,
            also_called=("diff", "preview"),
        ),
        "apply": CommandRow(
            "make it so, once, and wait until all is ready",
            formats=TEXT_OR_JSON,
            also_called=("up", "sync", "start"),
        ),
        "watch": CommandRow(
            "make it so now, and whenever a file changes",
            formats=TEXT_OR_JSON,
        ),
        "follow": CommandRow(
            "make it so now, and with each new commit (what a bare `reconcile` does)",
            formats=TEXT_OR_JSON,
            also_called=("serve", "daemon"),
        ),
        "run": CommandRow(
            "the four as options: --dry-run, --once, --watch, or none",
            formats=(*TEXT_OR_JSON, "markdown (with --dry-run)"),
        ),
        "validate": CommandRow(
            "check every file of the fleet; without --cluster it opens no connection",
            formats=("text", "json", "sarif", "github", "markdown"),
            makes_no_garbage=True,
            also_called=("check", "lint"),
        ),
        "comment": CommandRow(
            "write a text as the comment of a pull request, or write that comment anew"
        ),
        "status": CommandRow(
            "what runs where, and how it is",
            formats=TEXT_OR_JSON,
            also_called=(
                *("get", "ps", "list", "ls", "info", "health", "is-active", "wait"),
                *("services", "service", "nodes", "node", "pods"),
            ),
        ),
        "ask": CommandRow(
            "ask a service that runs, and print its answer as it comes",
            formats=TEXT_OR_JSON,
            interleaves=True,
            also_called=(
                "chat",
                "query",
                "prompt",
                "generate",
                "embed",
                "rerank",
                "exec",
                "attach",
            ),
        ),
        "logs": CommandRow(
            "what a service's engine writes, on any node and in pods",
            formats=("text",),
            also_called=("log", "tail", "journal", "journalctl"),
        ),
        "top": CommandRow(
            "memory against its budget, tokens a second and requests, live",
            formats=("text",),
            also_called=("stats", "usage"),
        ),
        "open": CommandRow(
            "open the page of this machine, a node, a service or a cluster in a browser",
            formats=("text",),
            also_called=("browse", "ui", "dashboard"),
        ),
        "events": CommandRow("what happened on nodes lately", formats=TEXT_OR_JSON),
        "bench": CommandRow(
            "measure here or in clusters, what machines have measured, and evidence of it",
            formats=TEXT_OR_JSON,
            also_called=("benchmark", "measure"),
        ),
        "stop": CommandRow("drain and stop services on this machine", also_called=("down", "kill")),
        "restart": CommandRow(
            "restart services on this machine, also what was stopped by hand",
            also_called=("reload", "rollout"),
        ),
        "explain": CommandRow(
            "where an object goes, what it needs, how it is started, and why",
            formats=TEXT_OR_JSON,
            makes_no_garbage=True,
            also_called=("describe", "show", "inspect", "cat"),
        ),
        "render": CommandRow(
            "the commands, or a cluster's objects, that the fleet's services become",
            formats=("text", "json", "or a folder to write files to"),
            makes_no_garbage=True,
            also_called=("template", "build"),
        ),
        "deploy": CommandRow(
            "write a model and its service into the fleet, if they fit",
            formats=("text",),
            also_called=("add", "new", "create"),
        ),
        "suspend": CommandRow(
            "stop services and keep their files, in the fleet's own files",
            formats=("text",),
            also_called=("pause", "disable"),
        ),
        "resume": CommandRow(
            "let suspended services run again",
            formats=("text",),
            also_called=("unsuspend", "unpause", "enable"),
        ),
        "rm": CommandRow(
            "take services and other objects out of the fleet's files",
            formats=("text",),
            also_called=("remove", "delete", "destroy"),
        ),
        "install": CommandRow(
            "put the reconciler into a Kubernetes cluster, or make a node's agent known there",
            formats=("text",),
        ),
        "uninstall": CommandRow(
            "take the reconciler out of a Kubernetes cluster", formats=("text",)
        ),
        "extender": CommandRow(
            "answer a kube-scheduler that asks which node is good for a service", serves=True
        ),
        "completion": CommandRow(
            "print what makes bash, zsh or fish complete commands, options and names",
            serves=True,
            logs=False,
        ),
        "schema": CommandRow(
            "write the JSON Schemas of the kinds", makes_no_garbage=True, serves=True
        ),
        "demo": CommandRow("serve a small real model from a private copy of the example fleet"),
        "help": CommandRow("list the commands, or the options of one"),
        "version": CommandRow("print the version"),
    }
)


def foreign_names() -> Mapping[str, str]:
    """What other tools, and the other program, call it -> what does that here."""
    from agent.cli.commands import COMMANDS as OF_AN_AGENT  # only where a word is not known

    agents = {word: f"fleet-agent {word}" for word in OF_AN_AGENT}
    fetch = dict.fromkeys(("pull", "download"), "fleet-agent fetch")
    return {**OF_OTHER_PROGRAMS, **other_names(COMMANDS), **agents, **fetch}
