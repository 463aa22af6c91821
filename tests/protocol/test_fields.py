"""What a value loses on its way to an older version, or to a newer one."""

import copy
import json
from typing import Any

import msgspec
import pytest

from mcpearl import types
from mcpearl.protocol.fields import BLOCKS, MEMBERS, REWRITES, _members, narrow
from mcpearl.protocol.versions import VERSIONS
from mcpearl.types import (
    Annotations,
    AudioContent,
    BooleanSchema,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    CompleteRequestParams,
    CompletionArgument,
    CompletionContext,
    ContentBlock,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    EmbeddedResource,
    EnumOption,
    GetPromptResult,
    Icon,
    ImageContent,
    Implementation,
    InitializeRequestParams,
    InputRequiredResult,
    ListChangedCapability,
    ListResourcesResult,
    ListRootsResult,
    ListToolsResult,
    NumberSchema,
    ProgressNotificationParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    ReadResourceResult,
    RequestedSchema,
    Resource,
    ResourceContents,
    ResourceLink,
    ResourceTemplate,
    Root,
    RootsCapability,
    SamplingCapability,
    SamplingMessage,
    ServerCapabilities,
    StringSchema,
    TaskMetadata,
    TasksCapability,
    TextContent,
    TextResourceContents,
    TitledSingleSelectEnumSchema,
    Tool,
    ToolAnnotations,
    ToolChoice,
    ToolExecution,
    ToolResultContent,
    ToolUseContent,
    encode,
)

META = {"a": 1}
ICONS = [Icon(src="https://a.example/i.png")]
SCHEMA = {"type": "object"}
TEXT = TextContent(text="x")

# For each value in full: the members it has from the start, then those that come and go with each
# version, in the order of VERSIONS. "-member" is gone from that version on.
FULL: list[tuple[Any, str, str, str, str, str]] = [
    (
        Annotations(audience=["user"], priority=1, last_modified="2025-01-01"),
        "audience priority",
        "",
        "lastModified",
        "",
        "",
    ),
    (
        Implementation(
            name="a", version="1", title="A", description="d", website_url="u", icons=ICONS
        ),
        "name version",
        "",
        "title",
        "description websiteUrl icons",
        "",
    ),
    (
        ClientCapabilities(
            experimental={},
            roots=RootsCapability(),
            sampling=SamplingCapability(),
            elicitation=ElicitationCapability(),
            tasks=TasksCapability(),
            extensions={},
        ),
        "experimental roots sampling extensions",
        "",
        "elicitation",
        "tasks",
        "-tasks",
    ),
    (
        ServerCapabilities(
            experimental={},
            logging={},
            completions={},
            prompts=ListChangedCapability(),
            tasks=TasksCapability(),
            extensions={},
        ),
        "experimental logging prompts extensions",
        "completions",
        "",
        "tasks",
        "-tasks",
    ),
    (RootsCapability(list_changed=True), "listChanged", "", "", "", "-listChanged"),
    (SamplingCapability(context={}, tools={}), "", "", "", "context tools", ""),
    (ElicitationCapability(form={}, url={}), "", "", "", "form url", ""),
    (
        Tool(
            name="a",
            input_schema=SCHEMA,
            title="A",
            description="d",
            output_schema=SCHEMA,
            annotations=ToolAnnotations(),
            execution=ToolExecution(),
            icons=ICONS,
            meta=META,
        ),
        "name inputSchema description",
        "annotations",
        "title outputSchema _meta",
        "icons execution",
        "-execution",
    ),
    (
        CallToolRequestParams(
            name="a",
            arguments=msgspec.Raw(b"{}"),
            task=TaskMetadata(),
            input_responses={},
            request_state="s",
            meta=META,
        ),
        "name arguments _meta",
        "",
        "",
        "task",
        "-task inputResponses requestState",
    ),
    (
        CallToolResult(
            content=[], structured_content={}, is_error=True, meta=META, result_type="complete"
        ),
        "content isError _meta structuredContent",
        "",
        "",
        "",
        "resultType",
    ),
    (
        ListToolsResult(
            tools=[], next_cursor="c", ttl_ms=0, cache_scope="public", result_type="complete"
        ),
        "tools nextCursor",
        "",
        "",
        "",
        "ttlMs cacheScope resultType",
    ),
    (
        Resource(uri="a:1", name="a", title="A", size=1, icons=ICONS, meta=META),
        "uri name size",
        "",
        "title _meta",
        "icons",
        "",
    ),
    (
        ResourceTemplate(uri_template="a:{x}", name="a", title="A", icons=ICONS, meta=META),
        "uriTemplate name",
        "",
        "title _meta",
        "icons",
        "",
    ),
    (TextResourceContents(uri="a:1", text="x", meta=META), "uri text", "", "_meta", "", ""),
    (
        Prompt(name="a", title="A", description="d", arguments=[], icons=ICONS, meta=META),
        "name description arguments",
        "",
        "title _meta",
        "icons",
        "",
    ),
    (
        PromptArgument(name="a", title="A", description="d", required=True),
        "name description required",
        "",
        "title",
        "",
        "",
    ),
    (PromptReference(name="a", title="A"), "type name", "", "title", "", ""),
    (TextContent(text="x", meta=META), "type text", "", "_meta", "", ""),
    (ImageContent(data="", mime_type="a/b", meta=META), "type data mimeType", "", "_meta", "", ""),
    (
        EmbeddedResource(resource=ResourceContents(uri="a:1", text="x"), meta=META),
        "type resource",
        "",
        "_meta",
        "",
        "",
    ),
    (
        SamplingMessage(role="user", content=TEXT, meta=META),
        "role content",
        "",
        "",
        "_meta",
        "",
    ),
    (
        CreateMessageRequestParams(
            messages=[],
            max_tokens=1,
            metadata={},
            tools=[],
            tool_choice=ToolChoice(),
            task=TaskMetadata(),
            meta=META,
        ),
        "messages maxTokens metadata _meta",
        "",
        "",
        "tools toolChoice task",
        "-task -_meta",
    ),
    (
        CreateMessageResult(
            role="user", content=TEXT, model="m", stop_reason="endTurn", meta=META, result_type="x"
        ),
        "role content model stopReason _meta",
        "",
        "",
        "",
        "",
    ),
    (
        ElicitRequestParams(
            message="m", mode="url", url="u", elicitation_id="1", task=TaskMetadata(), meta=META
        ),
        "message _meta",
        "",
        "",
        "mode url elicitationId task",
        "-elicitationId -task -_meta",
    ),
    (
        ElicitResult(action="accept", content={}, meta=META, result_type="x"),
        "action content _meta",
        "",
        "",
        "",
        "-_meta",
    ),
    (RequestedSchema(properties={}, schema="s"), "type properties", "", "", "$schema", ""),
    (Root(uri="file:///a", name="a", meta=META), "uri name", "", "_meta", "", ""),
    (ListRootsResult(roots=[], meta=META, result_type="x"), "roots _meta", "", "", "", "-_meta"),
    (
        CompleteRequestParams(
            ref=PromptReference(name="a"),
            argument=CompletionArgument(name="x", value=""),
            context=CompletionContext(),
        ),
        "ref argument",
        "",
        "context",
        "",
        "",
    ),
    (
        ProgressNotificationParams(progress_token=1, progress=1, total=2, message="m"),
        "progressToken progress total",
        "message",
        "",
        "",
        "",
    ),
]


def members(value: Any) -> set[str]:
    return set(json.loads(encode(value)))


@pytest.mark.parametrize(("value", "changes"), [(full[0], full[1:]) for full in FULL])
def test_a_version_has_the_members_it_has(value: Any, changes: tuple[str, ...]) -> None:
    before = copy.deepcopy(value)
    expected: set[str] = set()
    for version, words in zip(VERSIONS, changes, strict=True):
        for word in words.split():
            expected = expected - {word[1:]} if word[0] == "-" else expected | {word}
        assert members(narrow(value, version)) == expected, version
    assert value == before


def test_every_row_of_the_table_is_tried() -> None:
    tried = {base.__name__ for full in FULL for base in type(full[0]).__mro__}
    # Audio has tests of its own, as it is no audio in the oldest version.
    assert MEMBERS.keys() - tried == {"AudioContent"}


def test_every_row_names_a_member_and_versions_that_exist() -> None:
    for name, rows in [*MEMBERS.items(), *REWRITES.items()]:
        assert rows.keys() <= set(getattr(types, name).__struct_fields__)
    assert all(issubclass(getattr(types, name), types.Wire) for name in BLOCKS)
    spans = [span for rows in MEMBERS.values() for span in rows.values()] + list(BLOCKS.values())
    for span in spans:
        first, _, last = span.partition("..")
        assert {first, last} <= {"", *VERSIONS} or (first, last) == ("9999", "0000")


def test_members_are_found_as_msgspec_finds_them() -> None:
    """Annotations are read as they are written, and a member that a version lacks becomes None."""
    named = (getattr(types, name) for name in types.__all__)
    structs = [each for each in named if isinstance(each, type) and issubclass(each, types.Wire)]
    assert len(structs) > 100
    for kind in structs:
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        found = _members(kind)
        assert {name: field.type for name, field in fields.items()} == found, kind
        for name in MEMBERS.get(kind.__name__, ()):
            assert fields[name].default is None, (kind, name)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "value",
    [
        CallToolResult(content=[TEXT, ImageContent(data="", mime_type="image/png")]),
        CallToolResult(content=[TextContent(text="x", annotations=Annotations(priority=1))]),
        ListToolsResult(tools=[Tool(name="a", input_schema=SCHEMA)] * 3),
        GetPromptResult(messages=[PromptMessage(role="user", content=TEXT)]),
        CreateMessageRequestParams(
            messages=[SamplingMessage(role="user", content=TEXT)], max_tokens=1
        ),
        ServerCapabilities(tools=ListChangedCapability(list_changed=True)),
        ElicitRequestParams(
            message="m",
            requested_schema=RequestedSchema(properties={"a": {"type": "string"}}),
        ),
        {"not": "a struct"},
    ],
)
def test_what_needs_no_change_is_the_same_object(value: Any, version: str) -> None:
    assert narrow(value, version) is value


def test_the_newest_version_keeps_a_result_as_it_is() -> None:
    result = CallToolResult(
        content=[TextContent(text="x", meta=META), AudioContent(data="", mime_type="audio/wav")],
        structured_content=[1],
        result_type="complete",
    )
    assert narrow(result, "2026-07-28") is result


def test_members_go_at_any_depth_and_the_rest_is_shared() -> None:
    plain = Tool(name="b", input_schema=SCHEMA)
    page = ListToolsResult(
        tools=[plain, Tool(name="a", input_schema=SCHEMA, title="A", icons=ICONS), plain],
        extra={"own": 1},
    )
    before = copy.deepcopy(page)
    narrowed = narrow(page, "2025-03-26")
    assert narrowed.tools == [plain, Tool(name="a", input_schema=SCHEMA), plain]
    assert narrowed.tools[0] is plain
    assert narrowed.extra == {"own": 1}
    assert page == before


def test_members_go_inside_params_and_dicts() -> None:
    params = InitializeRequestParams(
        protocol_version="2025-03-26",
        capabilities=ClientCapabilities(elicitation=ElicitationCapability()),
        client_info=Implementation(name="a", version="1", title="A"),
    )
    assert narrow(params, "2025-03-26").capabilities == ClientCapabilities()
    assert narrow(params, "2025-03-26").client_info == Implementation(name="a", version="1")
    asked = InputRequiredResult(
        input_requests={
            "a": ElicitRequest(params=ElicitRequestParams(message="m", elicitation_id="1"))
        }
    )
    assert narrow(asked, "2026-07-28").input_requests == {
        "a": ElicitRequest(params=ElicitRequestParams(message="m"))
    }


def test_annotations_inside_blocks_are_narrowed() -> None:
    block = TextContent(text="x", annotations=Annotations(priority=1, last_modified="2025-01-01"))
    narrowed = narrow(CallToolResult(content=[block]), "2024-11-05")
    assert narrowed.content == [TextContent(text="x", annotations=Annotations(priority=1))]


# --- blocks a version does not have ---

LINK = ResourceLink(uri="file:///a.txt", name="a.txt", annotations=Annotations(priority=1))
AUDIO = AudioContent(data="AA==", mime_type="audio/wav", meta=META)


@pytest.mark.parametrize(
    ("block", "version", "text"),
    [
        (LINK, "2025-03-26", "a.txt: file:///a.txt"),
        (LINK, "2024-11-05", "a.txt: file:///a.txt"),
        (AUDIO, "2024-11-05", "[audio, audio/wav]"),
    ],
)
def test_a_block_the_version_lacks_is_put_into_words(
    block: ContentBlock, version: str, text: str
) -> None:
    (told,) = narrow(CallToolResult(content=[block]), version).content
    assert told == TextContent(text=text, annotations=block.annotations)
    message = PromptMessage(role="user", content=block)
    assert narrow(message, version).content == told


def test_a_block_the_version_has_stays_without_its_newer_members() -> None:
    assert narrow(AUDIO, "2025-03-26") == AudioContent(data="AA==", mime_type="audio/wav")
    assert narrow(LINK, "2025-06-18") is LINK


def test_a_resource_in_a_list_is_no_link() -> None:
    page = ListResourcesResult(resources=[Resource(uri="a:1", name="a")])
    assert narrow(page, "2024-11-05") is page


def test_embedded_contents_lose_their_meta() -> None:
    result = ReadResourceResult(contents=[TextResourceContents(uri="a:1", text="x", meta=META)])
    (contents,) = narrow(result, "2025-03-26").contents
    assert contents == TextResourceContents(uri="a:1", text="x")


# --- values that were restricted ---


class Point(msgspec.Struct):
    x: int


@pytest.mark.parametrize("value", [{"a": 1}, {}, Point(1), msgspec.Raw(b' {"a":1}')])
def test_structured_content_that_is_an_object_stays(value: Any) -> None:
    result = CallToolResult(content=[], structured_content=value)
    assert narrow(result, "2025-06-18") is result


@pytest.mark.parametrize("value", [None, 1, True, "x", [1], (1,), msgspec.Raw(b"[1]")])
def test_structured_content_that_is_no_object_is_left_out(value: Any) -> None:
    result = CallToolResult(content=[TEXT], structured_content=value)
    assert narrow(result, "2025-11-25") == CallToolResult(content=[TEXT])
    assert narrow(result, "2026-07-28") is result


@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"anyOf": []}])
def test_an_output_schema_of_no_object_is_left_out(schema: dict[str, Any]) -> None:
    tool = Tool(name="a", input_schema=SCHEMA, output_schema=schema, title="A")
    assert narrow(tool, "2025-11-25") == Tool(name="a", input_schema=SCHEMA, title="A")
    assert narrow(tool, "2026-07-28") is tool


def test_a_message_of_several_blocks_becomes_several_messages() -> None:
    use = ToolUseContent(id="1", name="add", input={"a": 1})
    answer = ToolResultContent(tool_use_id="1", content=[TextContent(text="4")])
    params = CreateMessageRequestParams(
        messages=[
            SamplingMessage(role="user", content=TEXT),
            SamplingMessage(role="assistant", content=[TEXT, use]),
            SamplingMessage(role="user", content=[answer]),
        ],
        max_tokens=1,
    )
    assert narrow(params, "2025-06-18").messages == [
        SamplingMessage(role="user", content=TEXT),
        SamplingMessage(role="assistant", content=TEXT),
        SamplingMessage(role="assistant", content=TextContent(text='[tool use, add: {"a":1}]')),
        SamplingMessage(role="user", content=TextContent(text="4")),
    ]
    assert narrow(params, "2025-11-25") is params


def test_a_sampled_answer_of_several_blocks_is_told_in_one() -> None:
    image = ImageContent(data="", mime_type="image/png")

    def narrowed(content: Any) -> Any:
        result = CreateMessageResult(role="assistant", model="m", content=content)
        return narrow(result, "2025-06-18").content

    assert narrowed([image]) == image
    assert narrowed([TEXT, image]) == TextContent(text="x\n[image, image/png]")


def test_a_form_has_no_defaults_but_for_booleans_and_names_its_choices_apart() -> None:
    form = RequestedSchema(
        properties={
            "city": {"type": "string", "default": "Oslo", "minLength": 1},
            "days": NumberSchema(type="integer", default=3),
            "sure": BooleanSchema(default=True),
            "tone": TitledSingleSelectEnumSchema(
                one_of=[EnumOption(const="s", title="Short")], default="s", title="Tone"
            ),
        },
        required=["city"],
    )
    before = copy.deepcopy(form)
    assert json.loads(encode(narrow(form, "2025-06-18"))) == {
        "type": "object",
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "minLength": 1},
            "days": {"type": "integer"},
            "sure": {"type": "boolean", "default": True},
            "tone": {"type": "string", "title": "Tone", "enum": ["s"], "enumNames": ["Short"]},
        },
    }
    assert form == before
    assert narrow(form, "2025-11-25") is form


def test_a_form_without_defaults_stays() -> None:
    form = RequestedSchema(properties={"a": StringSchema(), "b": {"type": "boolean"}})
    assert narrow(form, "2025-06-18") is form


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(KeyError):
        narrow(TEXT, "2023-01-01")
