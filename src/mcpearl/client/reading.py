"""What a client reads from a server: resources, prompts, completions, and changes as they happen."""

from collections.abc import Mapping
from typing import Any, TypeVar

from mcpearl.client.arguments import as_text
from mcpearl.client.cache import CacheView
from mcpearl.client.eras import EraRules
from mcpearl.client.pages import PagedItems, get_page
from mcpearl.client.progress import ProgressCallback
from mcpearl.client.requests import Requests
from mcpearl.client.subscription import Subscription
from mcpearl.types.completion import (
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)
from mcpearl.types.pages import PaginatedResult
from mcpearl.types.prompts import (
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
)
from mcpearl.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from mcpearl.types.subscriptions import SubscriptionFilter

P = TypeVar("P", bound=PaginatedResult)


class Reading:
    """The part of a `Client` that reads what a server offers."""

    _requests: Requests
    _cache: CacheView

    @property
    def _era(self) -> EraRules:
        raise NotImplementedError

    async def _page(self, method: str, cursor: str | None, kind: type[P]) -> P:
        return await get_page(self._requests, self._cache, method, cursor, kind)

    # Resources

    async def list_resources(self, cursor: str | None = None) -> ListResourcesResult:
        """Return one page of the resources.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        return await self._page("resources/list", cursor, ListResourcesResult)

    def resources(self) -> PagedItems[Resource]:
        """Iterate over all resources, page by page."""
        return PagedItems(self.list_resources, lambda page: page.resources)

    async def list_resource_templates(
        self, cursor: str | None = None
    ) -> ListResourceTemplatesResult:
        """Return one page of the resource templates.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        return await self._page("resources/templates/list", cursor, ListResourceTemplatesResult)

    def resource_templates(self) -> PagedItems[ResourceTemplate]:
        """Iterate over all resource templates, page by page."""
        return PagedItems(self.list_resource_templates, lambda page: page.resource_templates)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> ReadResourceResult:
        """Read a resource.

        Args:
            uri: the resource's URI.
            timeout: seconds for the call, including repeated requests; by default the client's.
            max_timeout: seconds for the call in all; with it, progress restarts `timeout`.
            on_progress: called with each progress notification; by default the client's callback.
            meta: members of `_meta` in the request.
        """
        method = "resources/read"
        self._requests.need(method)
        cached = self._cache.get(method, uri, ReadResourceResult)
        if cached is not None:
            return cached
        asked_at = self._cache.changes
        params = ReadResourceRequestParams(uri=uri)
        call = self._requests.call(
            method, params, ReadResourceResult, timeout, max_timeout, on_progress, meta
        )
        result = await self._requests.run(call)
        if not call.rounds:  # otherwise the result may depend on the user's answers
            self._cache.put(method, uri, result, asked_at)
        return result

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource: each change calls `on_notification`, and drops the cached content.

        Args:
            uri: the resource's URI.
        """
        self._requests.need("resources/subscribe")
        await self._era.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        """End a subscription.

        Args:
            uri: the resource's URI.
        """
        await self._era.unsubscribe(uri)

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: list[str] | None = None,
    ) -> Subscription:
        """Return a stream of changes on a modern server, to be opened with `async with`.

        Args:
            tools: whether changes of the list of tools are wanted.
            prompts: whether changes of the list of prompts are wanted.
            resource_list: whether changes of the list of resources are wanted.
            resources: URIs of resources whose changes are wanted.
        """
        wanted = SubscriptionFilter(
            tools_list_changed=tools or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resource_list or None,
            resource_subscriptions=resources,
        )
        return self._era.listen(wanted)

    # Prompts and completion

    async def list_prompts(self, cursor: str | None = None) -> ListPromptsResult:
        """Return one page of the prompts.

        Args:
            cursor: `next_cursor` of the previous page; None for the first page.
        """
        return await self._page("prompts/list", cursor, ListPromptsResult)

    def prompts(self) -> PagedItems[Prompt]:
        """Iterate over all prompts, page by page."""
        return PagedItems(self.list_prompts, lambda page: page.prompts)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        meta: dict[str, Any] | None = None,
    ) -> GetPromptResult:
        """Return a prompt with its arguments filled in.

        Args:
            name: the prompt's name.
            arguments: values by name; a value that is not text is sent as JSON.
            timeout: seconds for the call, including repeated requests; by default the client's.
            max_timeout: seconds for the call in all; with it, progress restarts `timeout`.
            on_progress: called with each progress notification; by default the client's callback.
            meta: members of `_meta` in the request.
        """
        texts = {key: as_text(name, value) for key, value in (arguments or {}).items()}
        params = GetPromptRequestParams(name=name, arguments=texts or None)
        call = self._requests.call(
            "prompts/get", params, GetPromptResult, timeout, max_timeout, on_progress, meta
        )
        return await self._requests.run(call)

    async def complete(
        self,
        reference: str | PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        """Return suggestions for an argument of a prompt or a resource template.

        Args:
            reference: the prompt's name, the template's URI, or a reference to either.
            argument: the argument's name.
            value: what the user has typed so far.
            context: values of arguments that are filled in already.
        """
        if isinstance(reference, str):
            reference = (
                ResourceTemplateReference(uri=reference)
                if "://" in reference
                else PromptReference(name=reference)
            )
        params = CompleteRequestParams(
            ref=reference,
            argument=CompletionArgument(name=argument, value=value),
            context=CompletionContext(arguments=dict(context)) if context else None,
        )
        return (await self._requests.ask("completion/complete", params, CompleteResult)).completion
