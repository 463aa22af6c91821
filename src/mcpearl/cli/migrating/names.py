"""What names of FastMCP 2 to 4 and `mcp` 1 and 2 are called in mcpearl, and what has no counterpart."""

from functools import cache

ROOTS = ("fastmcp", "fastmcp_tasks", "mcp", "mcp_types")

# Modules with the types of the protocol; `mcp` 2 has them in a package of their own, too.
TYPES = ("mcp.types", "mcp_types")

# Classes and errors, wherever they are imported from.
RENAMED = {
    "FastMCP": "Server",
    "MCPServer": "Server",
    "Context": "Context",
    "Client": "Client",
    "Image": "Image",
    "Audio": "Audio",
    "File": "File",
    "ToolError": "ToolError",
    "ToolResult": "ToolResult",
    "Message": "Message",
    "UserMessage": "UserMessage",
    "AssistantMessage": "AssistantMessage",
    "McpError": "McpError",
    "MCPError": "McpError",
    "Depends": "Depends",
    "Icon": "Icon",
    "FastMCPError": "McpearlError",
    "ServerRequestContext": "Context",
    "NotFoundError": "ResourceNotFound",
    "TaskConfig": "Tasks",
}
SERVERS = {"FastMCP", "MCPServer"}

# Types of the protocol that `mcp` has apart and mcpearl as one, with what an object of them has to say.
TYPES_RENAMED = {
    "ElicitRequestFormParams": ("ElicitRequestParams", ""),
    "ElicitRequestURLParams": ("ElicitRequestParams", 'mode="url"'),
}
# Extensions that a server of mcpearl has without being told.
BUILT_IN = {"TasksExtension"}
EXTENSION_DROPPED = "dropped with its options; `Server(store=…)` keeps tasks"

# A call that says how a tool is a task, by its only argument `mode`.
TASK_MODES = {
    "optional": "TaskConfig()",
    "required": "TaskConfig(required=True)",
    "forbidden": "False",
}
TASK_BY_HAND = "`Tasks(…)` has `required=`, `after=`, `ttl=` and `poll=` in seconds"

# What to do about names that have no counterpart.
BY_HAND = {
    "ClientSession": "`async with Client(target) as client` does what a session and its transport did",
    "StdioServerParameters": 'pass the command to `Client`: `Client(["python", "server.py"])`',
    "stdio_client": 'pass the command to `Client`: `Client(["python", "server.py"])`',
    "sse_client": "pass the URL to `Client`",
    "streamablehttp_client": "pass the URL to `Client`",
    "streamable_http_client": "pass the URL to `Client`",
    "stdio_server": "`app.run()` serves on stdio",
    "Server": "write a `Handler`, with a method for each request, and `Server(name, handler=…)`",
    "Middleware": "write a function and pass it as `Server(middleware=[…])`",
    "get_context": "take `ctx: Context` as a parameter",
    "get_http_headers": "use `ctx.headers`",
    "get_http_request": "use `ctx.headers` and `ctx.client_address`",
    "get_access_token": "use `ctx.principal`",
    "CurrentContext": "take `ctx: Context` as a parameter",
    "Progress": "use `ctx.progress(done, total)`",
    "ErrorData": "raise `McpError(code, message, data)`",
    "Tool": "register the function: `app.add_tool(function, name=…)`",
    "Prompt": "register the function: `app.add_prompt(function, name=…)`",
    "FunctionTool": "register the function: `app.add_tool(function, name=…)`",
    "UrlElicitationRequiredError": "raise `UrlElicitationRequired([{…}])`, with the params as dicts",
    "ResourceError": "raise `McpError(code, message)`",
    "PromptError": "raise `McpError(code, message)`",
    "ValidationError": "raise `ToolError(message)`",
    "create_proxy": "`Gateway({…})`, or `mcpearl run URL`",
    "FastMCPProxy": "`Gateway({…})`, or `mcpearl run URL`",
    "ProxyClient": "`Gateway({…})`, or `mcpearl run URL`",
    "TransportSecuritySettings": "`app.run(…, allowed_hosts=[…], allowed_origins=[…])`",
    "SseServerTransport": "`app.asgi(http_sse=True)` is the ASGI application",
    "StreamableHTTPSessionManager": "`app.asgi()` is the ASGI application",
    "StdioTransport": 'pass the command to `Client`: `Client(["python", "server.py"])`',
    "PythonStdioTransport": 'pass the file to `Client`: `Client("server.py")`',
    "StreamableHttpTransport": "pass the URL to `Client`",
    "SSETransport": "pass the URL to `Client`",
    "JWTVerifier": "`mcpearl.auth.JWTVerifier`, with `issuer=` and `audience=`",
    "StaticTokenVerifier": "`mcpearl.auth.StaticTokens`",
    "TokenVerifier": "subclass `mcpearl.auth.Verifier`",
    "AuthSettings": "`Server(auth=…)` takes a verifier of `mcpearl.auth`",
    "TasksExtension": "a server has tasks by itself; `@app.tool(task=True)` is enough",
    "Resolve": "ask in the function: `await ctx.elicit(…)` or `await ctx.sample(…)`",
    "Elicit": "ask in the function: `await ctx.elicit(…)`",
    "Sample": "ask in the function: `await ctx.sample(…)`",
    "ElicitationResult": "`await ctx.elicit(…)` returns `Elicited`, with `action` and `data`",
    "AcceptedElicitation": '`(await ctx.elicit(…)).action` is "accept"',
    "DeclinedElicitation": '`(await ctx.elicit(…)).action` is "decline"',
    "CancelledElicitation": '`(await ctx.elicit(…)).action` is "cancel"',
    "InputRequiredToolResult": "ask in the function: `await ctx.elicit(…)`",
    "UserSession": "use `ctx.session`, which belongs to the user where there is no session",
    "SessionId": "use `ctx.session`",
    "CacheHint": "`Server(list_ttl_ms=…)`, and `ttl_ms=` of a resource",
    "RequestStateSecurity": "`Server(state_keys=[…])`",
    "ServerSession": "the context has what sessions had: `ctx.elicit`, `ctx.sample`, `ctx.log`",
    "InitializationOptions": "name and version are the server's: `Server(name, version)`",
    "NotificationOptions": "the server announces changes of its lists by itself",
}
# By the module, where a name says too little.
_MODULES = {
    "fastmcp.server.middleware": "write a function and pass it as `Server(middleware=[…])`",
    "fastmcp.server.auth": "`mcpearl.auth` verifies tokens; it does not log users in elsewhere",
    "fastmcp.server.openapi": "write the tools; there is no server from an OpenAPI document",
    "fastmcp.server.providers": "mount servers with `app.mount`, or register what it offers",
    "fastmcp.server.transforms": '`app.mount("name", other, rewrite=…)` changes what a server offers',
    "fastmcp.tools": "register the function: `app.add_tool(function, name=…)`",
    "fastmcp.prompts": "register the function: `app.add_prompt(function, name=…)`",
    "fastmcp.resources": "register the function: `app.add_resource(uri, function)`",
    "fastmcp.experimental": "it has no counterpart",
    "fastmcp_tasks": "`@app.tool(task=True)` runs tasks, and `Server(store=…)` keeps them",
    "fastmcp.apps": "MCP Apps have no counterpart",
    "fastmcp.server.apps": "MCP Apps have no counterpart",
    "mcp.server.auth": "`mcpearl.auth` verifies tokens; it is not an authorization server",
    "mcp.client": "`async with Client(target) as client` does what a session and its transport did",
}


def by_module(module: str) -> str:
    """Return what to do about a name of a module that has no counterpart."""
    for known, advice in _MODULES.items():
        if module == known or module.startswith(known + "."):
            return advice
    return "it has no counterpart by this name"


# Keywords of the constructor of a server.
SERVER_KEYWORDS = {
    "mask_error_details": "mask_errors",
    "list_page_size": "page_size",
    "on_duplicate_tools": "on_duplicate",
}
PAGE_SIZE = "`page_size=` is a number; leave it out where FastMCP has None"
# What belongs to `run` and `asgi` now, and what it is called there; None for what is not needed.
OF_RUN: dict[str, str | None] = {
    "host": "host",
    "port": "port",
    "streamable_http_path": "path",
    "stateless_http": "stateless",
    "json_response": None,
    "mount_path": None,
    "sse_path": None,
    "message_path": None,
}
# What does not change what the server offers: it goes, and is listed.
SERVER_DROPPED = {
    "dependencies": "dropped; packages belong into pyproject.toml, or `mcpearl install --with`",
    "log_level": "dropped; set MCPEARL_LOG_LEVEL",
    "debug": "dropped; set MCPEARL_LOG_LEVEL=DEBUG",
    "include_fastmcp_meta": "dropped; nothing of the kind is sent",
    "strict_input_validation": "dropped; `lenient=True` takes arguments of nearly the right type",
    "warn_on_duplicate_tools": 'dropped; `on_duplicate="warn"` is the default',
    "warn_on_duplicate_resources": 'dropped; `on_duplicate="warn"` is the default',
    "warn_on_duplicate_prompts": 'dropped; `on_duplicate="warn"` is the default',
    "on_duplicate_resources": "dropped; `on_duplicate` is for tools, resources and prompts alike",
    "on_duplicate_prompts": "dropped; `on_duplicate` is for tools, resources and prompts alike",
}
SERVER_BY_HAND = {
    "tools": "register each with `app.add_tool(function)`",
    "providers": "mount servers with `app.mount`, or register what the provider offers",
    "transforms": '`app.mount("name", other, rewrite=…)` changes what another server offers',
    "include_tags": "there are no tags; register what should be offered",
    "exclude_tags": "there are no tags; register what should be offered",
    "transport_security": "`app.run(…, allowed_hosts=[…], allowed_origins=[…])`",
    "token_verifier": "`auth=` takes a verifier of `mcpearl.auth`",
    "auth_server_provider": "mcpearl is not an authorization server; name yours with `ResourceServer`",
    "sampling_handler": "clients sample; `mcpearl.AnthropicSampling` and others are for clients",
    "cache_hints": "`Server(list_ttl_ms=…)`, and `ttl_ms=` of a resource",
    "request_state_security": "`Server(state_keys=[…])`",
    "event_store": '`app.run("http", event_store=…)`',
}
SERVER_MEMBERS = "`app.run(…)` takes the options; what begins with an underscore has no counterpart"
# Options of tools, resources and prompts that go, and are listed.
REGISTRATION_DROPPED = {
    "tags": "dropped; there are no tags. `meta=` sends what clients should see",
    "structured_output": "dropped; the return annotation decides, see `output_schema=`",
    "run_in_thread": "dropped; `def` runs in a thread, `async def` on the loop",
    "version": "dropped; register one version of it",
}

# Methods of a server.
METHODS = {
    "run_async": "serve",
    "run_stdio_async": "serve",
    "run_http_async": "serve",
    "run_sse_async": "serve",
    "run_streamable_http_async": "serve",
    "sse_app": "asgi",
    "http_app": "asgi",
    "streamable_http_app": "asgi",
    "custom_route": "route",
}
# Those that serve, and the first argument of what they became.
SERVES = {
    "run_http_async": '"http"',
    "run_sse_async": '"http", http_sse=True',
    "run_streamable_http_async": '"http"',
    "sse_app": "http_sse=True",
}
ASGI = {"http_app", "streamable_http_app", "sse_app"}
RUNS = {"run", "run_async", *SERVES, *ASGI}
METHODS_BY_HAND = {
    "import_server": '`app.mount("name", other)`',
    "completion": '`@app.complete("prompt", "argument")` for each argument',
    "as_proxy": "`Gateway({…})`, or `mcpearl run URL`",
    "from_openapi": "write the tools; there is no server from an OpenAPI document",
    "from_fastapi": "write the tools; there is no server from a FastAPI application",
    "add_middleware": "`Server(middleware=[…])`",
    "add_tool_transformation": '`app.mount("name", other, rewrite=…)`',
    "enable": "register what should be offered, with `add_tool` and `remove_tool`",
    "disable": "register what should be offered, with `add_tool` and `remove_tool`",
    "get_tools": "`Client(app)`, and `client.tools()`",
    "list_tools": "`Client(app)`, and `client.tools()`",
    "call_tool": "`Client(app)`, and `client.call_tool(…)`",
}
RUN_KEYWORDS = {"stateless_http": "stateless", "streamable_http_path": "path"}
RUN_DROPPED = {"show_banner", "json_response"}
SECURITY = {"allowed_hosts", "allowed_origins"}  # of TransportSecuritySettings
ASGI_DROPPED = {"host", "port"}  # what serves the application has these
ROUTE_DROPPED = {"include_in_schema", "name"}  # of Starlette's pages about an application
RUN_BY_HAND = {
    "log_level": "set MCPEARL_LOG_LEVEL",
    "uvicorn_config": "options of `Http` take its place",
    "middleware": "put it around `app.asgi()`",
    "mount_path": "`path=` is the path of the endpoint",
    "transport_security": "`allowed_hosts=[…]` and `allowed_origins=[…]` are options of this call",
}

# What a client of FastMCP returns as a list, and what walks over the same things.
WALKS = {
    "list_tools": "tools",
    "list_resources": "resources",
    "list_resource_templates": "resource_templates",
    "list_prompts": "prompts",
}

# Members of a context.
CONTEXT_RENAMED = {"lifespan_context": "lifespan", "list_roots": "roots"}
REQUEST_CONTEXT = {
    "lifespan_context": "lifespan",
    "request_id": "request_id",
    "meta": "meta",
}
STATE = {"get_state": "get", "set_state": "set", "delete_state": "delete"}
SESSION_BY_HAND = {
    "create_message": "`await ctx.sample(…)`",
    "elicit": "`await ctx.elicit(…)`",
    "elicit_form": "`await ctx.elicit(…)`",
    "elicit_url": "`await ctx.elicit_url(…)`",
    "list_roots": "`await ctx.roots()`",
    "send_log_message": "`await ctx.log(level, data)`",
    "send_progress_notification": "`await ctx.progress(done, total)`",
    "send_resource_updated": "`app.notify_resource_updated(uri)`",
    "send_tool_list_changed": "the server announces changes of its lists by itself",
    "send_resource_list_changed": "the server announces changes of its lists by itself",
    "send_prompt_list_changed": "the server announces changes of its lists by itself",
    "check_client_capability": "`ctx.client.capabilities`",
    "client_params": "`ctx.client`",
}
CONTEXT_BY_HAND = {
    "input_responses": "ask in the function: `await ctx.elicit(…)` returns the answer",
    "request_state": "ask in the function; what it needs again it keeps with `ctx.once(key, …)`",
    "fastmcp": "name the server itself",
    "mcp_server": "name the server itself",
    "request_context": "`ctx.lifespan`, `ctx.meta` and `ctx.headers` are members of the context",
    "client_id": "`ctx.principal`",
    "send_tool_list_changed": "the server announces changes of its lists by itself",
    "list_resources": "use the server's own functions",
    "list_prompts": "use the server's own functions",
}


@cache
def snake_members() -> dict[str, str]:
    """Return the members of the protocol's types by their names on the wire, as mcpearl has them."""
    import msgspec

    import mcpearl.types as types

    found: dict[str, str] = {}
    for name in dir(types):
        kind = getattr(types, name)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
            found |= {wire: field for field, wire in pairs if wire != field and wire.isidentifier()}
    found.pop("_meta", None)
    return found


@cache
def type_names() -> frozenset[str]:
    """Return the names that `mcpearl.types` has."""
    import mcpearl.types as types

    return frozenset(name for name in dir(types) if not name.startswith("_"))
