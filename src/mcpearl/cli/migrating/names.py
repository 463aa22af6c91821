"""What names of FastMCP 2 to 4 and `mcp` 1 and 2 are called in mcpearl, and what has no counterpart."""

from functools import cache

ROOTS = ("fastmcp", "mcp")

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
}
SERVERS = {"FastMCP", "MCPServer"}

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
}

# Keywords of the constructor of a server.
SERVER_KEYWORDS = {
    "mask_error_details": "mask_errors",
    "list_page_size": "page_size",
    "on_duplicate_tools": "on_duplicate",
}
OF_RUN = {
    *("host", "port", "mount_path", "streamable_http_path", "stateless_http", "json_response"),
    *("sse_path", "message_path", "transport_security", "event_store"),
}

# Methods of a server.
METHODS = {
    "run_async": "serve",
    "run_stdio_async": "serve",
    "http_app": "asgi",
    "streamable_http_app": "asgi",
    "custom_route": "route",
}
METHODS_BY_HAND = {
    "run_http_async": '`app.serve("http", …)`',
    "run_sse_async": '`app.serve("http", http_sse=True)`',
    "run_streamable_http_async": '`app.serve("http", …)`',
    "sse_app": "`app.asgi(http_sse=True)`",
    "import_server": '`app.mount("name", other)`',
    "completion": '`@app.complete("prompt", "argument")` for each argument',
    "as_proxy": "`Gateway({…})`, or `mcpearl run URL`",
    "from_openapi": "write the tools; there is no server from an OpenAPI document",
    "from_fastapi": "write the tools; there is no server from a FastAPI application",
    "add_middleware": "`Server(middleware=[…])`",
    "get_tools": "`Client(app)`, and `client.tools()`",
    "list_tools": "`Client(app)`, and `client.tools()`",
    "call_tool": "`Client(app)`, and `client.call_tool(…)`",
}
RUN_KEYWORDS = {"stateless_http": "stateless"}
RUN_DROPPED = {"show_banner", "json_response"}
RUN_BY_HAND = {
    "log_level": "set MCPEARL_LOG_LEVEL",
    "uvicorn_config": "options of `Http` take its place",
    "middleware": "put it around `app.asgi()`",
    "mount_path": "`path=` is the path of the endpoint",
}

# Members of a context.
CONTEXT_BY_HAND = {
    "get_state": "`ctx.state` keeps values of the session",
    "set_state": "`ctx.state` keeps values of the session",
    "delete_state": "`ctx.state` keeps values of the session",
    "fastmcp": "name the server itself",
    "mcp_server": "name the server itself",
    "request_context": "`ctx.lifespan`, `ctx.meta` and `ctx.session` are members of the context",
    "list_roots": "`await ctx.roots()`",
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
