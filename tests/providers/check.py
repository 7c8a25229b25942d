"""Checks a coordinator against the providers' own Python packages, end to end.

Usage: check.py URL, where the coordinator offers weather, word-count and bench-echo.
What the packages dump is posted; what comes back must read as the packages' own parameter types.
Prints "providers: ok", or what differs and exits with 1.
"""

import json
import sys
from typing import Any, Callable

import httpx2
from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam
from google.genai.types import Content, GenerateContentResponse, Tool
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionToolMessageParam,
)
from openai.types.responses import FunctionToolParam, Response, ResponseCustomToolCallOutputParam
from openai.types.responses.response_input_item_param import FunctionCallOutput
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

TIMEOUT_S = 60.0
TOOLS = {"bench-echo", "weather", "word-count"}
ERROR_PREFIX = "Tool error: "
# Beyond 2^53: a reader that takes numbers for floats changes it.
BIG = 9007199254740993

# (tool, arguments, whether the model is told of an error). The order is not the sorted one, and the
# last but one is refused by the schema while its siblings run.
CALLS: list[tuple[str, dict[str, Any], bool]] = [
    ("word-count", {"text": "one two\nthree é"}, False),
    ("bench-echo", {"z": BIG, "a": None}, False),
    ("weather", {"city": "Lisbon"}, True),
    ("weather", {"city": "Lisbon", "days": 2}, False),
]


class Differs(Exception):
    """Something that came back is not what the package's types or the contract say."""


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Differs(text)


def read_as(kind: Any, value: Any, what: str) -> Any:
    """Reads a value as a package's type, strictly: keys that the type does not have are told."""
    name = getattr(kind, "__name__", str(kind))
    try:
        # Iterables are read lazily; dumping walks them to their end.
        adapter = TypeAdapter(kind)
        read = adapter.validate_python(value)
        dumped = json.loads(adapter.dump_json(read, warnings="error"))
    except (ValidationError, PydanticSerializationError) as error:
        raise Differs(f"{what} does not read as {name}: {value}: {error}") from error
    # An unknown key is dropped in reading, so that it is missing here.
    expect(dumped == value, f"{what} as {name} loses something: {value} became {dumped}")
    return value


def openai_response(prefix: str) -> ChatCompletion:
    """A whole response of Chat Completions that makes CALLS."""
    calls = [
        {
            "id": f"{prefix}{position:016d}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for position, (tool, arguments, _) in enumerate(CALLS)
    ]
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": message}
    return ChatCompletion.model_validate(
        {
            "id": "chatcmpl-check",
            "object": "chat.completion",
            "created": 1,
            "model": "any",
            "choices": [choice],
        }
    )


def anthropic_response(prefix: str) -> Message:
    """A whole response of Messages that makes CALLS, other blocks around them."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "Looking."}]
    blocks += [
        {"type": "tool_use", "id": f"{prefix}{position:016d}", "name": tool, "input": arguments}
        for position, (tool, arguments, _) in enumerate(CALLS)
    ]
    blocks.append(
        {
            "type": "server_tool_use",
            "id": "srvtoolu_0000000000000001",
            "name": "web_search",
            "input": {"query": "weather"},
        }
    )
    return Message.model_validate(
        {
            "id": "msg_check",
            "type": "message",
            "role": "assistant",
            "model": "any",
            "content": blocks,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )


def responses_response(prefix: str) -> Response:
    """A whole response of the Responses API that makes CALLS, other items around them."""
    items: list[dict[str, Any]] = [{"type": "reasoning", "id": "rs_check", "summary": []}]
    items += [
        {
            "type": "function_call",
            "id": f"fc_{position}",
            "call_id": f"{prefix}{position:016d}",
            "name": tool,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        for position, (tool, arguments, _) in enumerate(CALLS)
    ]
    search = {"type": "search", "query": "weather", "queries": ["weather"]}
    items.append(
        {"type": "web_search_call", "id": "ws_check", "status": "completed", "action": search}
    )
    return Response.model_validate(
        {
            "id": "resp_check",
            "object": "response",
            "created_at": 1.0,
            "status": "completed",
            "model": "any",
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )


def gemini_response(prefix: str) -> GenerateContentResponse:
    """A whole response of generateContent that makes CALLS, other parts around them."""
    parts: list[dict[str, Any]] = [{"text": "Looking.", "thought": True}]
    parts += [
        {"functionCall": {"id": f"{prefix}{position:016d}", "name": tool, "args": arguments}}
        for position, (tool, arguments, _) in enumerate(CALLS)
    ]
    parts[1]["thoughtSignature"] = "EqQB"
    parts.append({"executableCode": {"code": "1", "language": "PYTHON"}})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return GenerateContentResponse.model_validate({"candidates": [candidate]})


def openai_results(messages: list[Any]) -> list[tuple[str, str, bool]]:
    """(id, text, is error) of each result."""
    results = []
    for message in messages:
        read_as(ChatCompletionToolMessageParam, message, "an OpenAI message")
        text = message["content"]
        expect(isinstance(text, str), f"content is no string: {message}")
        results.append((message["tool_call_id"], text, text.startswith(ERROR_PREFIX)))
    return results


def anthropic_results(messages: list[Any]) -> list[tuple[str, str, bool]]:
    """(id, text, is error) of each result, all of one user message."""
    expect(len(messages) == 1, f"{len(messages)} messages instead of one: {messages}")
    read_as(MessageParam, messages[0], "the Anthropic message")
    expect(messages[0]["role"] == "user", f"the role is {messages[0]['role']}")
    results = []
    for block in messages[0]["content"]:
        read_as(ToolResultBlockParam, block, "an Anthropic result")
        parts = block.get("content", [])
        expect(len(parts) <= 1, f"more than one text block: {block}")
        text = parts[0]["text"] if parts else ""
        is_error = block.get("is_error", False)
        expect(is_error == text.startswith(ERROR_PREFIX), f"flag and prefix differ: {block}")
        results.append((block["tool_use_id"], text, is_error))
    return results


def responses_results(items: list[Any]) -> list[tuple[str, str, bool]]:
    """(id, text, is error) of each result."""
    results = []
    for item in items:
        read_as(FunctionCallOutput, item, "a Responses item")
        text = item["output"]
        expect(isinstance(text, str), f"output is no string: {item}")
        results.append((item["call_id"], text, text.startswith(ERROR_PREFIX)))
    return results


def gemini_results(contents: list[Any]) -> list[tuple[str, str, bool]]:
    """(id, text, is error) of each result, all of one user content."""
    expect(len(contents) == 1, f"{len(contents)} contents instead of one: {contents}")
    read = read_as_gemini(Content, contents[0], "the Gemini content")
    expect(read.role == "user", f"the role is {read.role}")
    results = []
    for part, (tool, _, _) in zip(read.parts, CALLS, strict=True):
        answered = part.function_response
        expect(answered.name == tool, f"{answered.name} stands where {tool} was called")
        expect(len(answered.response) == 1, f"more than one key: {answered.response}")
        is_error = "error" in answered.response
        value = answered.response["error" if is_error else "output"]
        text = value if isinstance(value, str) else json.dumps(value)
        expect(is_error == text.startswith(ERROR_PREFIX), f"key and prefix differ: {part}")
        results.append((answered.id, text, is_error))
    return results


def read_as_gemini(kind: Any, value: Any, what: str) -> Any:
    """Reads a value as one of Gemini's types, which forbid keys that they do not have."""
    try:
        read = kind.model_validate(value)
    except ValidationError as error:
        raise Differs(f"{what} does not read as {kind.__name__}: {value}: {error}") from error
    dumped = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    expect(in_lower_types(dumped) == in_lower_types(value), f"{what}: {value} became {dumped}")
    return read


def in_lower_types(value: Any) -> Any:
    """A value with the names of its types in lower case: both spellings are the same."""
    if isinstance(value, list):
        return [in_lower_types(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item.lower() if key == "type" and isinstance(item, str) else in_lower_types(item)
        for key, item in value.items()
    }


def check_results(results: list[tuple[str, str, bool]], prefix: str) -> None:
    """Every call is answered once, in order, and well where it should be."""
    ids = [call_id for call_id, _, _ in results]
    wanted = [f"{prefix}{position:016d}" for position in range(len(CALLS))]
    expect(ids == wanted, f"ids are {ids}, not {wanted}")
    for (tool, arguments, is_error_wanted), (_, text, is_error) in zip(CALLS, results):
        expect(is_error == is_error_wanted, f"{tool} {arguments} gave {text!r}")
    counted = json.loads(results[0][1])
    expect(counted == {"lines": 2, "words": 4, "bytes": 16}, f"word-count gave {counted}")
    echoed = json.loads(results[1][1])
    expect(echoed.get("z") == BIG, f"bench-echo gave {results[1][1]}")
    refused = f"{ERROR_PREFIX}invalid input: "
    expect(results[2][1].startswith(refused), f"weather without days gave {results[2][1]!r}")
    forecast = json.loads(results[3][1])
    expect(forecast["city"] == "Lisbon" and len(forecast["days"]) == 2, f"weather gave {forecast}")


def post(client: httpx2.Client, execution: str, body: str, turn: str = "") -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    path = f"/v1/executions/{execution}/turns" + (f"?turn={turn}" if turn else "")
    answer = client.post(path, content=body, headers=headers)
    expect(answer.status_code == 200, f"{execution}: status {answer.status_code}: {answer.text}")
    return answer.json()


def check_turns(
    client: httpx2.Client,
    provider: str,
    prefix: str,
    response: Any,
    message: Any,
    results: Callable[[list[Any]], list[tuple[str, str, bool]]],
    turn: str = "",
) -> None:
    """Posts each form that the package dumps; the first is posted again and must attach, by its ids
    or by the name of its turn."""
    bodies = [
        json.dumps(response.model_dump(mode="json")),
        response.model_dump_json(),
        response.model_dump_json(exclude_none=True),
        response.model_dump_json(by_alias=True, exclude_unset=True),
        json.dumps(message),
        json.dumps({"message": message}),
    ]
    for number, body in enumerate(bodies):
        answer = post(client, f"py-{provider}-{number}", body, turn)
        what = f"py-{provider}-{number}"
        expect(answer["state"] == "done", f"{what}: state {answer['state']}")
        expect(answer["format"].startswith(provider), f"{what}: format {answer['format']}")
        check_results(results(answer["messages"]), prefix)
    again = post(client, f"py-{provider}-0", bodies[0], turn)
    expect(again["replayed"] is True, f"{provider}: a message posted again ran again")
    check_results(results(again["messages"]), prefix)


def check_free_text(client: httpx2.Client) -> None:
    """A free-text call is answered as one."""
    call = {"type": "custom_tool_call", "call_id": "call_text", "name": "bench-echo", "input": "a b"}
    (item,) = post(client, "py-free-text", json.dumps([call]))["messages"]
    read_as(ResponseCustomToolCallOutputParam, item, "the answer to a free-text call")
    expect(item["call_id"] == "call_text", f"the id is {item['call_id']}")
    expect(json.loads(item["output"]) == {"input": "a b"}, f"bench-echo gave {item['output']}")


def check_gemini_tools(client: httpx2.Client, option: str, key: str) -> None:
    """The list of declarations reads as the package's type, in both forms of schemas."""
    path = f"/v1/tools?format=gemini&schema={option}"
    (tool,) = client.get(path).raise_for_status().json()["tools"]
    read_as_gemini(Tool, tool, f"the tools of {path}")
    declarations = tool["functionDeclarations"]
    names = [declaration["name"] for declaration in declarations]
    expect(names == sorted(names) and TOOLS <= set(names), f"{path}: names are {names}")
    weather = next(one for one in declarations if one["name"] == "weather")
    expect(weather[key]["type"] == "object", f"{path}: weather is {weather}")
    expect(set(weather) == {"name", "description", key}, f"{path}: weather is {weather}")


def check_without_calls(client: httpx2.Client, provider: str, message: Any) -> None:
    answer = post(client, f"py-{provider}-text", json.dumps(message))
    expect(answer["messages"] == [], f"{provider}: a message without calls gave {answer['messages']}")


def check_tools(client: httpx2.Client, tool_format: str, kind: Any) -> None:
    """The list reads as the package's type, is sorted, and stays equal byte for byte."""
    path = f"/v1/tools?format={tool_format}"
    answer = client.get(path)
    expect(answer.status_code == 200, f"{path}: status {answer.status_code}: {answer.text}")
    names, listed = [], answer.json()
    expect(listed["format"] == tool_format, f"{path}: format {listed['format']}")
    expect(listed["nextCursor"] is None, f"{path}: nextCursor {listed['nextCursor']}")
    for tool in listed["tools"]:
        read_as(kind, tool, f"a tool of {tool_format}")
        function = tool.get("function", tool)
        schema = function.get("parameters", function.get("input_schema"))
        names.append(function["name"])
        what = f"{tool_format}: {function['name']}"
        expect(function["strict"] is False, f"{what}: strict is {function['strict']}")
        expect(schema["type"] == "object", f"{what}: type is {schema['type']}")
        expect(isinstance(schema["properties"], dict), f"{what}: no properties")
    expect(names == sorted(set(names)), f"{tool_format}: names are {names}")
    expect(TOOLS <= set(names), f"{tool_format}: of {TOOLS} only {names} are listed")
    again = client.get(path)
    expect(again.content == answer.content, f"{path}: two answers differ")
    known = client.get(path, headers={"If-None-Match": answer.headers["ETag"]})
    expect(known.status_code == 304, f"{path}: a known ETag gave {known.status_code}")


def check(url: str) -> None:
    text = "Sunny."
    with httpx2.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as client:
        check_tools(client, "openai-chat", ChatCompletionFunctionToolParam)
        check_tools(client, "openai-responses", FunctionToolParam)
        check_tools(client, "anthropic", ToolParam)
        check_gemini_tools(client, "json-schema", "parametersJsonSchema")
        check_gemini_tools(client, "openapi", "parameters")

        openai = openai_response("call_")
        message = openai.choices[0].message.model_dump()
        check_turns(client, "openai-chat", "call_", openai, message, openai_results)
        check_without_calls(client, "openai-chat", {"role": "assistant", "content": text})

        responses = responses_response("call_")
        output = [item.model_dump() for item in responses.output]
        check_turns(client, "openai-responses", "call_", responses, output, responses_results)
        written = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [written]}
        check_without_calls(client, "openai-responses", [item])
        check_free_text(client)

        anthropic = anthropic_response("toolu_")
        dumped = anthropic.model_dump()
        message = {"role": dumped["role"], "content": dumped["content"]}
        check_turns(client, "anthropic", "toolu_", anthropic, message, anthropic_results)
        blocks = [{"type": "text", "text": text}]
        check_without_calls(client, "anthropic", {"role": "assistant", "content": blocks})

        gemini = gemini_response("call")
        content = gemini.candidates[0].content.model_dump(mode="json", exclude_none=True)
        check_turns(client, "gemini", "call", gemini, content, gemini_results, turn="one")
        check_without_calls(client, "gemini", {"role": "model", "parts": [{"text": text}]})


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: check.py URL", file=sys.stderr)
        return 2
    try:
        check(sys.argv[1])
    except Differs as difference:
        print(f"providers: {difference}", file=sys.stderr)
        return 1
    except (httpx2.HTTPError, KeyError, IndexError, TypeError, ValueError) as error:
        print(f"providers: an answer does not read: {error!r}", file=sys.stderr)
        return 1
    print("providers: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
