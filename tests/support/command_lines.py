"""Command lines of both programs as their own parsers read them, and nothing is run."""

from __future__ import annotations

import argparse
import shlex

import agent.cli
import agent.cli.commands
import reconciler.cli
import reconciler.cli.commands


def read(line: str) -> tuple[str, argparse.Namespace]:
    """`PROGRAM COMMAND` and what the words after it say. Raises UsageError."""
    program, *words = shlex.split(line)
    if program == "fleet-agent":
        command, *rest = words
        return f"{program} {command}", agent.cli.parser_of(command).parse_args(rest)
    assert program == "reconcile", line
    named, rest = reconciler.cli.split_command(words)
    return f"{program} {named or 'run'}", reconciler.cli.parser_of(named).parse_args(rest)


def parser_for(command: str) -> argparse.ArgumentParser:
    """Of `PROGRAM COMMAND`."""
    program, name = command.split()
    return {"reconcile": reconciler.cli, "fleet-agent": agent.cli}[program].parser_of(name)


def all_commands() -> frozenset[str]:
    """`PROGRAM COMMAND` of every row of the programs' own tables."""
    ours = {f"reconcile {name}" for name in reconciler.cli.commands.COMMANDS}
    return frozenset(ours | {f"fleet-agent {name}" for name in agent.cli.commands.COMMANDS})
