"""The client's side of a conversation in a test: scripted answers, and what the server said meanwhile."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from mcpearl.client.callbacks import Roots
from mcpearl.client.options import ClientOptions
from mcpearl.protocol.errors import McpError
from mcpearl.protocol.events import Notice
from mcpearl.types.elicitation import ElicitRequestParams
from mcpearl.types.jsonrpc import INTERNAL_ERROR
from mcpearl.types.logging import LoggingMessageNotificationParams
from mcpearl.types.progress import ProgressNotificationParams
from mcpearl.types.roots import Root
from mcpearl.types.sampling import CreateMessageRequestParams

_MOST = 10_000  # messages of one kind that are kept; the oldest are dropped


class Asked(NamedTuple):
    """A question of the server, and what it was answered with."""

    method: str
    """`elicitation/create` or `sampling/createMessage`."""
    params: Any
    answer: Any

    @property
    def message(self) -> str:
        """What the server asked, as text."""
        if isinstance(self.params, ElicitRequestParams):
            return self.params.message
        return "\n".join(
            block.text
            for message in self.params.messages
            for block in (
                message.content if isinstance(message.content, list) else [message.content]
            )
            if hasattr(block, "text")
        )


class Answers:
    """Answers to what the server asks, in the order in which it asks.

    An answer is what the callbacks of `Client` return: for elicitation a dict, True, False (declined) or
    None (cancelled), for sampling text. An answer that is a function is called with the params of the
    question, and one that is an exception is raised.

    >>> answers = Answers(elicitation=[{"name": "Ada"}, True], sampling=["a poem"])
    >>> async with Client(app, **answers.options) as client:
    ...     await client.call_tool("register")
    >>> assert answers.asked[0].message == "What is your name?"
    >>> answers.check()

    Args:
        elicitation: Answers to questions for the user; a function answers all of them. With None, the
            client does not say that it can ask its user.
        sampling: Answers to requests for a model, likewise.
        roots: The directories a server may work in, as for `Client`.
    """

    def __init__(
        self,
        elicitation: Iterable[Any] | Callable[[Any], Any] | None = None,
        sampling: Iterable[Any] | Callable[[Any], Any] | None = None,
        roots: Roots | None = None,
    ) -> None:
        self.asked: list[Asked] = []
        """Every question, in order, with its answer."""
        self.roots = roots
        """The directories, which may be changed while a client is connected."""
        self._scripts = {
            "elicitation/create": _ScriptedAnswers.of(elicitation),
            "sampling/createMessage": _ScriptedAnswers.of(sampling),
        }
        self._unanswered: list[str] = []

    def elicit(self, *answers: Any) -> "Answers":
        """Add answers to questions for the user.

        Args:
            *answers: The answers, in order.
        """
        self._script("elicitation/create").answers.extend(answers)
        return self

    def sample(self, *answers: Any) -> "Answers":
        """Add answers to requests for a model.

        Args:
            *answers: The answers, in order.
        """
        self._script("sampling/createMessage").answers.extend(answers)
        return self

    def _script(self, method: str) -> "_ScriptedAnswers":
        script = self._scripts[method]
        if script is None:
            script = self._scripts[method] = _ScriptedAnswers([])
        return script

    @property
    def options(self) -> ClientOptions:
        """The options of a `Client` that answers so."""
        options = ClientOptions()
        if self._scripts["elicitation/create"] is not None:
            options["elicitation"] = self._elicited
        if self._scripts["sampling/createMessage"] is not None:
            options["sampling"] = self._sampled
        if self.roots is not None:
            options["roots"] = self._listed
        return options

    async def _elicited(self, params: ElicitRequestParams) -> Any:
        return self._answer("elicitation/create", params)

    async def _sampled(self, params: CreateMessageRequestParams) -> Any:
        return self._answer("sampling/createMessage", params)

    async def _listed(self) -> Any:
        roots = self.roots() if callable(self.roots) else self.roots
        return [roots] if isinstance(roots, str | Path | Root) else roots

    def _answer(self, method: str, params: Any) -> Any:
        script = self._scripts[method]
        asked = Asked(method, params, None)
        if script is None or not script.has_more:
            self.asked.append(asked)
            self._unanswered.append(f"{method}: {asked.message!r}")
            raise McpError(
                INTERNAL_ERROR, f"no answer was scripted for {method}: {asked.message!r}"
            )
        answer = script.take()
        if callable(answer) and not isinstance(answer, type):
            answer = answer(params)
        self.asked.append(asked._replace(answer=answer))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def check(self) -> None:
        """Raise AssertionError if a question had no answer, or an answer was not asked for."""
        wrong = [
            f"the server asked, and no answer was scripted: {each}" for each in self._unanswered
        ]
        for method, script in self._scripts.items():
            left = [] if script is None else script.left
            wrong += [
                f"the server did not ask for this answer to {method}: {each!r}" for each in left
            ]
        if wrong:
            raise AssertionError("\n".join(wrong))


class _ScriptedAnswers:
    """Answers to one kind of question: some in order, or a function for all."""

    def __init__(self, answers: list[Any], always: Callable[[Any], Any] | None = None) -> None:
        self.answers = answers
        self.always = always
        self.used = 0

    @classmethod
    def of(cls, given: Iterable[Any] | Callable[[Any], Any] | None) -> "_ScriptedAnswers | None":
        if given is None:
            return None
        if isinstance(given, str | dict):
            raise TypeError(f"answers are a list of answers, or a function; write [{given!r}]")
        return cls([], given) if callable(given) else cls(list(given))

    @property
    def has_more(self) -> bool:
        return self.used < len(self.answers) or self.always is not None

    @property
    def left(self) -> list[Any]:
        return self.answers[self.used :]

    def take(self) -> Any:
        if self.used == len(self.answers):
            return self.always
        self.used += 1
        return self.answers[self.used - 1]


class Heard:
    """What a server said beside its answers: log messages, progress and other notifications.

    >>> heard = Heard()
    >>> async with Client(app, **heard.options) as client:
    ...     await client.call_tool("build")
    ...     await eventually(lambda: "done" in heard.texts)
    """

    def __init__(self) -> None:
        self.logs: list[LoggingMessageNotificationParams] = []
        """The log messages, in order."""
        self.progress: list[ProgressNotificationParams] = []
        """The progress of all calls, in order."""
        self.notifications: list[Notice] = []
        """Every other notification, in order, with its `method` and `params`."""

    @property
    def texts(self) -> list[str]:
        """The data of the log messages, as text."""
        return [each.data if isinstance(each.data, str) else repr(each.data) for each in self.logs]

    @property
    def options(self) -> ClientOptions:
        """The options of a `Client` that listens so."""
        return ClientOptions(
            on_log=lambda message: _keep(self.logs, message),
            on_progress=lambda progress: _keep(self.progress, progress),
            on_notification=lambda notice: _keep(self.notifications, notice),
        )


def _keep(kept: list[Any], one: Any) -> None:
    kept.append(one)
    if len(kept) > _MOST:
        del kept[0]
