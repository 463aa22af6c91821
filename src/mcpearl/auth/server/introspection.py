"""Verifies opaque access tokens by asking their issuer about each (RFC 7662)."""

import asyncio
from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import quote_plus

from mcpearl.auth.fetch import FetchError, FetchPolicy, fetch_json
from mcpearl.auth.principal import Principal
from mcpearl.auth.server.verifier import (
    TokenRefused,
    VerifierUnavailable,
    audiences,
    check_audience,
    check_times,
    principal_of,
)
from mcpearl.runtime import clock

_OWN_NETWORK = FetchPolicy(allow_loopback=True, allow_private=True)


class IntrospectionVerifier:
    """Asks the authorization server about every unknown token.

    `ResourceServer(recheck=…)` sets for how long an answer is used.

    Args:
        url: The introspection endpoint.
        issuer: The authorization server.
        audience: The audience, or audiences, that tokens must be issued for.
        client_id: How this server identifies itself to the endpoint.
        client_secret: The secret that goes with `client_id`.
        leeway: Seconds by which clocks may differ.
        max_asking: Concurrent questions. Ten times as many may wait; more are answered with 503.
        fetch: Where the answers may be fetched from.

    >>> IntrospectionVerifier(
    ...     "https://login.example.com/introspect",
    ...     issuer="https://login.example.com",
    ...     audience="https://mcp.example.com/mcp",
    ...     client_id="mcp",
    ...     client_secret=os.environ["INTROSPECTION_SECRET"],
    ... )
    """

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        audience: str | Iterable[str],
        client_id: str,
        client_secret: str,
        leeway: float = 30.0,
        max_asking: int = 32,
        fetch: FetchPolicy = _OWN_NETWORK,
    ) -> None:
        self.issuer = issuer
        self.audience = audiences(audience)
        self._url = url
        login = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
        self._headers = [("Authorization", f"Basic {b64encode(login.encode()).decode()}")]
        self._leeway = leeway
        self._policy = fetch
        self._asking = asyncio.Semaphore(max_asking)
        self._most = max_asking * 11  # open and waiting together
        self._questions: dict[str, asyncio.Task[dict[str, object]]] = {}  # by token

    async def verify(self, token: str) -> Principal:
        """Return the principal of a token. Raises `TokenRefused` or `VerifierUnavailable`.

        Args:
            token: The access token.
        """
        claims = dict(await self._answer(token))
        if claims.get("active") is not True:
            raise TokenRefused("its issuer says that it is not active")
        # RFC 7662 lets an issuer omit its own name.
        if claims.setdefault("iss", self.issuer) != self.issuer:
            raise TokenRefused("it comes from another issuer")
        check_audience(claims, self.audience)
        check_times(claims, clock.now(), self._leeway, must_end=False)
        return principal_of(claims)

    async def _answer(self, token: str) -> dict[str, object]:
        """Ask about a token; concurrent requests with the same token share one question."""
        question = self._questions.get(token)
        if question is None:
            if len(self._questions) >= self._most:
                raise VerifierUnavailable("too many tokens are waiting for introspection")
            question = asyncio.get_running_loop().create_task(self._ask(token))
            self._questions[token] = question
            question.add_done_callback(lambda done: self._answered(token, done))
        return await asyncio.shield(question)

    def _answered(self, token: str, question: "asyncio.Task[dict[str, object]]") -> None:
        del self._questions[token]
        if not question.cancelled():
            question.exception()  # mark as retrieved: all waiting requests may have gone

    async def _ask(self, token: str) -> dict[str, object]:
        try:
            async with self._asking:
                fetched = await fetch_json(
                    self._url,
                    method="POST",
                    form={"token": token, "token_type_hint": "access_token"},
                    headers=self._headers,
                    policy=self._policy,
                )
        except FetchError as error:
            raise VerifierUnavailable(f"introspection: {error}") from None
        if fetched.status != 200 or not isinstance(fetched.body, dict):
            raise VerifierUnavailable(f"introspection was answered with {fetched.status}")
        return fetched.body
