"""The life of a task, as a table; it is the same in both shapes that tasks have on the wire.

A task begins as `working`. It is `input_required` while questions to the client are open, and ends
exactly once: `completed`, `failed` or `cancelled`.
"""

from enum import Enum

from mcpearl.types.tasks import TaskStatus


class TaskStep(Enum):
    """An event in the life of a task."""

    ASK = "ask"  # a question is open that the client has to answer
    ANSWERED = "answered"  # no question is open any more
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


_ENDS: dict[TaskStep, TaskStatus] = {
    TaskStep.COMPLETE: "completed",
    TaskStep.FAIL: "failed",
    TaskStep.CANCEL: "cancelled",
}

TRANSITIONS: dict[TaskStatus, dict[TaskStep, TaskStatus]] = {
    "working": {TaskStep.ASK: "input_required", **_ENDS},
    "input_required": {
        TaskStep.ASK: "input_required",
        TaskStep.ANSWERED: "working",
        **_ENDS,
    },
    "completed": {},
    "failed": {},
    "cancelled": {},
}

TERMINAL = frozenset(status for status, steps in TRANSITIONS.items() if not steps)
"""A task in one of these states does not change any more."""


def following(status: TaskStatus, step: TaskStep) -> TaskStatus | None:
    """Return the status after a step, or None if the step cannot be taken from here."""
    return TRANSITIONS[status].get(step)
