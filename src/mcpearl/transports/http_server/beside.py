"""What an endpoint answers beside MCP: documents of its gate, health checks, routes and a site."""

from contextlib import nullcontext
from typing import Any

from mcpearl.net.http_server.request import Request
from mcpearl.transports.http_server.admission import Admission
from mcpearl.transports.http_server.cors import PUBLIC
from mcpearl.transports.http_server.gate import WELL_KNOWN, Gate
from mcpearl.transports.http_server.origin import ServedLocation
from mcpearl.transports.http_server.pages import Pages
from mcpearl.transports.http_server.post import PostOutlet, Terms


class BesideMcp:
    """What one endpoint answers beside MCP.

    Args:
        gate: Has public documents, and lets requests to a site pass; None without authentication.
        pages: The health checks, routes and site; None if there are none.
        location: The hosts that pages are served on.
        admission: Counts the requests that are being answered.
        terms: What the endpoint grants every request.
        anonymous: The principal of requests before they have passed the gate.
    """

    def __init__(
        self,
        gate: Gate | None,
        pages: Pages | None,
        location: ServedLocation,
        admission: Admission,
        terms: Terms,
        anonymous: Any,
    ) -> None:
        self._gate = gate
        self._pages = pages
        self._location = location
        self._admission = admission
        self._terms = terms
        self._anonymous = anonymous

    async def answer(self, request: Request) -> bool:
        """Answer a request that is not for MCP; return whether it was one."""
        if self._gate is not None and await self._show_document(self._gate, request):
            return True
        return self._pages is not None and await self._show_page(self._pages, request)

    async def _show_document(self, gate: Gate, request: Request) -> bool:
        """Answer a request for a public document of the gate; return whether it was one."""
        document = gate.document(request) if request.path.startswith(WELL_KNOWN) else None
        if document is None:
            return False
        await request.respond(200, document, PUBLIC)
        return True

    async def _show_page(self, pages: Pages, request: Request) -> bool:
        """Answer a request for the server's health, a route or the site; return whether it was one."""
        if await pages.show_health(request):
            return True
        site = pages.site_at(request.path)
        if site is None and not pages.has(request.path):
            return False
        self._location.check_host(request.headers)
        if self._admission.open > self._admission.max_requests:
            raise self._admission.too_many()
        outlet = PostOutlet(self._terms, request, self._anonymous)
        if site is None:
            await pages.serve(request, outlet.read_body)
            return True
        if self._gate is not None and not site.is_public(request.path):
            await self._gate.admit(request)
        with self._admission.as_stream() if site.is_stream(request.path) else nullcontext():
            await site.serve(request, outlet.read_body)
        return True

    def end_streams(self) -> None:
        """End, in an orderly way, the streams of the site that would stay open forever."""
        if self._pages is not None and self._pages.site is not None:
            self._pages.site.end_streams()
