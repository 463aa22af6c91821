"""The changes that end a task: with a result, with an error, by cancellation."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mcpearl.protocol.errors import McpError, brief
from mcpearl.protocol.task_lifecycle import TaskStep, following
from mcpearl.schema.errors import OutputError
from mcpearl.server.failures import answer_to
from mcpearl.server.tasks.contents import TaskContents
from mcpearl.server.tasks.options import TaskBounds
from mcpearl.server.tasks.outcomes import encoded_error, encoded_result, failure_text
from mcpearl.stores.tasks import TaskRecord
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.tool_calls import CallToolResult

if TYPE_CHECKING:
    from mcpearl.server.core import ServerCore
    from mcpearl.server.tasks.run import TaskRun


class TaskEndings:
    """Makes the changes that end the tasks of one server.

    Args:
        core: What the server's connections share.
        bounds: Bounds of what is stored of one task.
        contents: Seals results.
    """

    def __init__(self, core: "ServerCore", bounds: TaskBounds, contents: TaskContents) -> None:
        self._core = core
        self._bounds = bounds
        self._contents = contents

    def of_run(self, run: "TaskRun") -> Callable[[TaskRecord], TaskRecord]:
        """Return the change that ends a task with what its tool returned or raised."""
        call, value = run.call, run.value
        if run.raised is not None or value is None:
            answer = answer_to(call, run.raised or RuntimeError(), mask=self._core.mask_errors)
            if isinstance(answer, McpError):
                return self.failing(answer)
            value = answer
        try:
            content, tool_error = encoded_result(call, value)
        except Exception as error:
            no_form = OutputError(f"The result has no JSON form: {error}")
            answer = answer_to(call, no_form, mask=False)
            assert isinstance(answer, CallToolResult)
            content, tool_error = encoded_result(call, answer)
        limit = self._bounds.max_result
        if len(content) > limit:
            self._core.bounded("TaskBounds.max_result", f"{len(content)} bytes")
            message = f"The result has {len(content)} bytes, over the {limit} of a task's result"
            return self.failing(McpError(INTERNAL_ERROR, message))
        said = failure_text(value) if tool_error else None

        def make(record: TaskRecord) -> TaskRecord:
            return self.over(record, TaskStep.COMPLETE, said, content, tool_error)

        return make

    def failing(self, error: McpError) -> Callable[[TaskRecord], TaskRecord]:
        """Return the change that ends a task with an error."""
        content = encoded_error(error)
        return lambda record: self.over(record, TaskStep.FAIL, error.message, content)

    def over(
        self,
        record: TaskRecord,
        step: TaskStep,
        message: str | None,
        content: bytes | None = None,
        tool_error: bool = False,
    ) -> TaskRecord:
        """Return a record as it is once the task has taken its last step."""
        status = following(record.status, step)
        assert status is not None
        return replace(
            record,
            status=status,
            status_message=None if message is None else brief(message, 1000),
            request=b"",
            journal=b"",
            result=None if content is None else self._contents.sealed(record.id, content),
            tool_error=tool_error,
            running=False,
        )
