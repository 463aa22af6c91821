"""Completion: suggestions for the arguments of prompts and resource templates."""

from mcpearl.types.base import RequestParams, Result, Wire


class PromptReference(Wire, kw_only=True, tag_field="type", tag="ref/prompt"):
    """Means a prompt by its name."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Wire, kw_only=True, tag_field="type", tag="ref/resource"):
    """Means a resource or a resource template by its URI."""

    uri: str


class CompletionArgument(Wire, kw_only=True):
    """The argument being typed and what there is of it."""

    name: str
    value: str


class CompletionContext(Wire, kw_only=True):
    """Arguments that already have their value."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams, kw_only=True):
    """Asks how an argument could go on."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire, kw_only=True):
    """Up to 100 suggestions, and how many there are in all."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The suggestions for an argument."""

    completion: Completion
