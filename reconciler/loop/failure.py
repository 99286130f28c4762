"""Errors that end a step of a pass. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.api.errors import ReconcilerError, error_text


class LoopStep(StrEnum):
    """The steps that fail on their own."""

    FETCH = "fetch"
    SYNC = "sync"  # a comparison, and what it applies
    NOTE = "note"  # the record of the applied revision


@dataclass(frozen=True, slots=True)
class StepFailure:
    """An error that ended a step. `is_defect`: the error is a defect of this program."""

    message: str
    is_defect: bool

    @classmethod
    def of(cls, error: Exception) -> StepFailure:
        """Describe an exception. Errors that a user can repair have their own words."""
        if isinstance(error, ReconcilerError | OSError):
            return cls(error_text(error), is_defect=False)
        return cls(
            f"InternalError: a bug in this program: {type(error).__name__}: {error}."
            " Running services continue. Please report it; with FLEET_DEBUG=1 set, the log has"
            " the place",
            is_defect=True,
        )
