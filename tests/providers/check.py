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
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionToolMessageParam,
)
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


def post(client: httpx2.Client, execution: str, body: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    answer = client.post(f"/v1/executions/{execution}/turns", content=body, headers=headers)
    expect(answer.status_code == 200, f"{execution}: status {answer.status_code}: {answer.text}")
    return answer.json()


def check_turns(
    client: httpx2.Client,
    provider: str,
    prefix: str,
    response: Any,
    message: Any,
    results: Callable[[list[Any]], list[tuple[str, str, bool]]],
) -> None:
    """Posts each form that the package dumps; the last is posted again and must attach."""
    bodies = [
        json.dumps(response.model_dump()),
        response.model_dump_json(),
        response.model_dump_json(exclude_none=True),
        json.dumps(message),
        json.dumps({"message": message}),
    ]
    for number, body in enumerate(bodies):
        answer = post(client, f"py-{provider}-{number}", body)
        what = f"py-{provider}-{number}"
        expect(answer["state"] == "done", f"{what}: state {answer['state']}")
        check_results(results(answer["messages"]), prefix)
    again = post(client, f"py-{provider}-0", bodies[0])
    expect(again["replayed"] is True, f"{provider}: a message posted again ran again")
    check_results(results(again["messages"]), prefix)


def check_without_calls(client: httpx2.Client, provider: str, message: dict[str, Any]) -> None:
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
        check_tools(client, "anthropic", ToolParam)

        openai = openai_response("call_")
        message = openai.choices[0].message.model_dump()
        check_turns(client, "openai", "call_", openai, message, openai_results)
        check_without_calls(client, "openai", {"role": "assistant", "content": text})

        anthropic = anthropic_response("toolu_")
        dumped = anthropic.model_dump()
        message = {"role": dumped["role"], "content": dumped["content"]}
        check_turns(client, "anthropic", "toolu_", anthropic, message, anthropic_results)
        blocks = [{"type": "text", "text": text}]
        check_without_calls(client, "anthropic", {"role": "assistant", "content": blocks})


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
