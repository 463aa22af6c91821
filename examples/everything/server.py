"""A server that uses every feature once, under the names the official conformance suite expects.

    python examples/everything/server.py --port 3000

serves all protocol versions at http://127.0.0.1:3000/mcp.
"""

import argparse
import asyncio
import base64
import json
import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from mcpearl import Context, Elicited, McpError, Media, Server, Tasks, ToolError
from mcpearl.types import (
    CreateMessageResult,
    EmbeddedResource,
    ResourceContents,
    TextContent,
)

app = Server(
    "everything",
    version="1.0.0",
    instructions="One of everything, to try a client on.",
    list_ttl_ms=60_000,
)

RED_DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
SILENCE = (
    b"RIFF\x26\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\2\0\0\0\0\0"
)


# Tools and what they can return


@app.tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@app.tool
def test_image_content() -> Media:
    """Return an image."""
    return Media(RED_DOT, "image/png")


@app.tool
def test_audio_content() -> Media:
    """Return a sound."""
    return Media(SILENCE, "audio/wav")


@app.tool
def test_embedded_resource() -> EmbeddedResource:
    """Return a resource embedded in the result."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@app.tool
def test_multiple_content_types() -> list[str | Media | EmbeddedResource]:
    """Return a text, an image and a resource."""
    data = json.dumps({"test": "data", "value": 123})
    return [
        "Multiple content types test:",
        Media(RED_DOT, "image/png"),
        embedded("test://mixed-content-resource", data, "application/json"),
    ]


@app.tool
def test_error_handling() -> str:
    """Fail; the client gets the message, marked as an error."""
    raise ToolError("This tool intentionally returns an error for testing")


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """Wrap a text as a resource."""
    return EmbeddedResource(resource=ResourceContents(uri=uri, mime_type=mime_type, text=text))


# Tools that report while they run


@app.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Write to the client's log while working."""
    await ctx.info("Tool execution started")
    await asyncio.sleep(0.05)
    await ctx.info("Tool processing data")
    await asyncio.sleep(0.05)
    await ctx.info("Tool execution completed")
    return "Tool with logging executed successfully"


@app.tool
async def test_logging_tool(ctx: Context) -> str:
    """Write to the client's log; from 2026-07-28 on, clients get it only if the request asks for it."""
    await ctx.info("Sent only to clients that asked for log messages")
    return "Logging evaluated"


@app.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress in three steps."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "Tool with progress executed successfully"


@app.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream during the work; a client with a session reconnects for the result."""
    ctx.close_stream(retry_ms=500)
    await asyncio.sleep(0.1)
    return "Reconnection test completed successfully"


# Tools that ask the client


@app.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model.

    Args:
        prompt: What to ask it.
    """
    return f"LLM response: {words(await ctx.sample(prompt, max_tokens=100))}"


@dataclass
class Reply:
    """A form with two required fields."""

    username: Annotated[str, Meta(description="The user's name")]
    email: Annotated[str, Meta(description="The user's email address")]


@app.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user.

    Args:
        message: What to show the user.
    """
    answer = await ctx.elicit(message, Reply)
    content = asdict(answer.data) if answer.accepted else {}
    return f"User response: action={answer.action}, content={json.dumps(content)}"


@dataclass
class Person:
    """A form whose fields have defaults."""

    name: Annotated[str, Meta(description="User name")] = "John Doe"
    age: Annotated[int, Meta(description="User age")] = 30
    score: Annotated[float, Meta(description="User score")] = 95.5
    status: Annotated[Literal["active", "inactive", "pending"], Meta(description="User status")] = (
        "active"
    )
    verified: Annotated[bool, Meta(description="Verification status")] = True


@app.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form whose fields have defaults."""
    answer = await ctx.elicit("Please review and update the form fields", Person)
    content = asdict(answer.data) if answer.accepted else {}
    return f"Elicitation completed: action={answer.action}, content={json.dumps(content)}"


def titled(*values: str) -> list[dict[str, str]]:
    """Return choices with a title each."""
    return [{"const": value, "title": value.capitalize()} for value in values]


CHOICES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("value1", "value2", "value3")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"anyOf": titled("value1", "value2", "value3")},
        },
    },
}


@app.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with a form written as JSON Schema, with every kind of choice."""
    answer = await ctx.elicit("Please select options from the enum fields", CHOICES)
    content = answer.data if answer.accepted else {}
    return f"Elicitation completed: action={answer.action}, content={json.dumps(content)}"


@app.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask; from 2026-07-28 on, a stream never carries server requests."""
    await ctx.progress(50, 100)
    answer = await ctx.elicit("Go on?")
    return f"Streaming complete: {answer.action}"


@app.tool
async def test_missing_capability(ctx: Context) -> str:
    """Ask for sampling; clients without that capability get an error."""
    return words(await ctx.sample("Are you there?"))


# Questions in several rounds. `key` names a question; without it, questions are numbered.


@dataclass
class Name:
    """A form."""

    name: str


@dataclass
class Color:
    """Another form."""

    color: str


@dataclass
class Consent:
    """A form with a checkbox."""

    ok: bool


@app.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return hello(answer)


@app.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample(
        "What is the capital of France?", max_tokens=100, key="capital_question"
    )
    return f"Sampling result: {words(answer)}"


@app.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's roots."""
    roots = await ctx.roots(key="client_roots")
    return f"Found {len(roots)} root(s): {', '.join(root.uri for root in roots)}"


@app.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Show that a value computed before a question is kept after it."""
    number = await ctx.once("number", lambda: 1001)
    answer = await ctx.elicit(f"Confirm number {number}", Consent, key="confirm")
    return f"state-ok: {number} {answer.action}"


@app.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three questions at once."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{hello(name)} {words(greeting)} You have {len(roots)} root(s)."


@app.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask two questions, one after the other."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return f"{hello(name)} You like {color.data.color if color.accepted else 'no color'}."


@app.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask; the state sent with the question is sealed, and refused if it was changed."""
    answer = await ctx.elicit("Please confirm", Consent, key="confirm")
    return f"integrity-ok: {answer.action}"


@app.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only for what this client is capable of."""
    can = ctx.client.capabilities
    asks: list[Any] = []
    if can.elicitation is not None:
        asks.append(ctx.elicit("What is your name?", Name, key="elicit_input"))
    if can.sampling is not None:
        asks.append(ctx.sample("Generate a greeting", max_tokens=50, key="sample_input"))
    answers = await asyncio.gather(*asks)
    return f"capabilities-ok: {len(answers)} answer(s)"


@app.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask the user before the prompt is made."""

    @dataclass
    class Background:
        context: str

    answer = await ctx.elicit("What context should the prompt use?", Background, key="user_context")
    return f"Prompt with context: {answer.data.context if answer.accepted else 'none'}"


def hello(answer: Elicited[Any]) -> str:
    """Return a greeting for the name in the answer."""
    return f"Hello, {answer.data.name}!" if answer.accepted else "Hello, stranger!"


def words(answer: CreateMessageResult) -> str:
    """Return the text of a model's answer."""
    blocks = answer.content if isinstance(answer.content, list) else [answer.content]
    return " ".join(block.text for block in blocks if isinstance(block, TextContent))


# Tools that run as tasks: they go on after the request was answered


@app.tool
def greet(name: str) -> str:
    """Greet someone, at once.

    Args:
        name: Whom to greet.
    """
    return f"Hello, {name}!"


@app.tool(task=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take a while. A client that can take a task gets one.

    Args:
        seconds: How long it takes.
        label: What the result says.
    """
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds:g} s"


@app.tool(task="required")
async def failing_job() -> str:
    """Fail after a while; a client that cannot take a task is refused."""
    await asyncio.sleep(1)
    raise ToolError("The job failed")


@app.tool(task=True)
async def protocol_error_job() -> str:
    """End with an error of the protocol instead of a result."""
    await asyncio.sleep(0.5)
    raise McpError(-32603, "The job ran into an error")


@dataclass
class Confirmation:
    """A form with a checkbox."""

    confirm: bool


@app.tool(task=True)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before something is deleted, while it runs as a task.

    Args:
        filename: What to delete.
    """
    answer = await ctx.elicit(f"Delete {filename}?", Confirmation)
    return f"{filename} was {'deleted' if answer.accepted and answer.data.confirm else 'kept'}"


@app.tool(task=True)
async def multi_input(ctx: Context) -> str:
    """Ask two questions at once, while it runs as a task."""
    name, consent = await asyncio.gather(
        ctx.elicit("What is your name?", Name), ctx.elicit("Go on?", Confirmation)
    )
    return f"{name.action}, {consent.action}"


@app.tool(task=Tasks(required=True, after=math.inf))
async def test_tool_with_task(ctx: Context) -> str:
    """Ask first, as a call, and do the work as a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.become_task()
    await asyncio.sleep(0.2)
    return hello(answer)


# Schemas: one written by hand, one with a parameter that is also sent as a header


@app.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {
            "properties": {"contactMethod": {"const": "phone"}},
            "required": ["contactMethod"],
        },
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(**contact: Any) -> str:
    """Accept what a schema with many keywords allows."""
    return f"Called with {json.dumps(contact)}"


@app.tool
def test_header_parameter(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})],
) -> str:
    """Take a parameter that is also sent as an HTTP header, so that proxies can route by it."""
    return f"Routed to {region}"


# Lists that change


def passing() -> str:
    """A tool that is added and removed."""
    return "here"


@app.tool
def test_trigger_tool_change() -> str:
    """Add a tool, and remove it again; listening clients are notified."""
    app.add_tool(passing)
    app.remove_tool("passing")
    return "The list of tools has changed"


@app.tool
def test_trigger_prompt_change() -> str:
    """Add a prompt, and remove it again; listening clients are notified."""
    app.add_prompt(passing)
    app.remove_prompt("passing")
    return "The list of prompts has changed"


# Resources


@app.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@app.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return RED_DOT


@app.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> dict[str, Any]:
    """A resource with an id in its URI."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@app.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A resource to subscribe to."""
    return "Watched resource content"


# Prompts


@app.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@app.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@app.complete("test_prompt_with_arguments", "arg1")
def complete_arg1(typed: str) -> list[str]:
    """Suggest values for the first argument."""
    return [value for value in ("paris", "park", "party") if value.startswith(typed)]


@app.prompt(name="test_prompt_with_embedded_resource")
def prompt_with_resource(resourceUri: str) -> list[str | EmbeddedResource]:  # noqa: N803
    """A prompt with a resource in it.

    Args:
        resourceUri: URI of the resource to embed.
    """
    content = embedded(resourceUri, "Embedded resource content for testing.")
    return [content, "Please process the embedded resource above."]


@app.prompt
def test_prompt_with_image() -> list[str | Media]:
    """A prompt with an image in it."""
    return [Media(RED_DOT, "image/png"), "Please analyze the image above."]


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Serve every feature once, over HTTP.")
    options.add_argument("--port", type=int, default=3000)
    app.run("http", port=options.parse_args().port)
