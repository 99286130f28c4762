"""The marks of plans and statuses, in one table. Pure, and light: `--help` prints it."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.report.terminal import Tone


class Mark(NamedTuple):
    """One mark: the action that it marks, how a total counts it, what it tells a newcomer."""

    sign: str
    action: str
    counted: str
    meaning: str
    tone: Tone = Tone.CHANGE


_STOPS = "stops: no longer declared, suspended, or its node is drained"
LEGEND = (
    Mark("+", "create", "to create", "starts, or is created in a cluster", Tone.GOOD),
    Mark("~", "update", "to update", "changes in place, without a restart on a node"),
    Mark("-/+", "replace", "to replace", "restarts as it is declared now"),
    Mark(">", "move", "to move", "moves to another node, and stays until it is ready there"),
    Mark("-", "delete", "to delete", _STOPS, Tone.BAD),
    Mark("-", "stop", "to stop", _STOPS, Tone.BAD),
    Mark("!", "drift", "drifted", "differs from what is declared: put right, or only reported"),
    Mark("=", "deferred", "restart pending", "an upgrade waits for its next restart", Tone.QUIET),
    Mark("?", "unknown", "unknown", "its node or cluster did not answer: left alone", Tone.QUIET),
    Mark("x", "blocked", "blocked", "stays as it is, for the reason below it", Tone.BAD),
    Mark(".", "stopped", "stopped by hand", "stopped until `fleet-agent restart`", Tone.QUIET),
)
BY_ACTION = {mark.action: mark for mark in LEGEND}


def legend_text() -> str:
    """A line for each sign."""
    meanings = {mark.sign: mark.meaning for mark in LEGEND}
    return "\n".join(f"  {sign:<4} {meaning}" for sign, meaning in meanings.items())
