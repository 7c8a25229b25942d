"""A stand-in for a model's HTTP API: as much of OpenAI's and Anthropic's as two turns need.

The first answer calls two tools. The second is text, and holds what came back for the calls. As the
providers do, it refuses a conversation whose calls are not answered.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

# Calls a tool with a wrong argument; every other model calls both well.
CLUMSY = "clumsy"
KEY = "key-of-the-stub"
FORECAST = ("weather", {"city": "Lisbon", "days": 2})
FORECAST_WRONG = ("weather", {"city": "Lisbon", "days": "two"})
BOOKING = ("book-table", {"party": 6, "date": "2031-05-17", "time": "19:30"})
CALLS = 2


class Refused(Exception):
    """What the provider would answer with status 400."""


def require(condition: bool, text: str) -> None:
    if not condition:
        raise Refused(text)


def calls_of(model: str) -> list[tuple[str, dict[str, Any]]]:
    return [FORECAST_WRONG if model == CLUMSY else FORECAST, BOOKING]


def final_text(results: list[str]) -> str:
    return "\n".join(["The tools said:", *(result.strip() for result in results)])


def compact(value: dict[str, Any]) -> str:
    """The form in which Pydantic AI sends arguments back, whatever form they came in."""
    return json.dumps(value, separators=(",", ":"))


def check_offered(names: list[str]) -> None:
    for name, _ in [FORECAST, BOOKING]:
        require(name in names, f"{name} is not among the tools {names}")


def openai_message(body: dict[str, Any]) -> dict[str, Any]:
    """The message that answers a request for a chat completion."""
    check_offered([tool["function"]["name"] for tool in body["tools"]])
    calls = [
        {
            "id": f"call_{position}",
            "type": "function",
            "function": {"name": name, "arguments": compact(arguments)},
        }
        for position, (name, arguments) in enumerate(calls_of(body["model"]))
    ]
    if body["messages"][-1]["role"] == "user":
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    asked, results = body["messages"][-CALLS - 1], body["messages"][-CALLS:]
    require(asked.get("tool_calls") == calls, f"the calls came back as {asked}")
    for call, result in zip(calls, results):
        require(result["role"] == "tool", f"{result} follows the calls")
        require(result["tool_call_id"] == call["id"], f"{result} does not answer {call['id']}")
    text = final_text([result["content"] for result in results])
    return {"role": "assistant", "content": text, "refusal": None}


def openai_completion(body: dict[str, Any]) -> dict[str, Any]:
    message = openai_message(body)
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "finish_reason": reason, "logprobs": None, "message": message}
    return {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def anthropic_content(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks that answer a request for a message."""
    check_offered([tool["name"] for tool in body["tools"]])
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "A forecast, then a table.", "signature": "c2lnbmVk"},
        {"type": "text", "text": "Looking."},
    ]
    calls = [
        {"type": "tool_use", "id": f"toolu_{position}", "name": name, "input": arguments}
        for position, (name, arguments) in enumerate(calls_of(body["model"]))
    ]
    blocks += calls
    asked, results = body["messages"][-2:] if len(body["messages"]) > 1 else (None, None)
    if asked is None or results is None:
        return blocks
    require(asked == {"role": "assistant", "content": blocks}, f"the blocks came back as {asked}")
    require(results["role"] == "user", f"{results} follows the calls")
    require(len(results["content"]) == CALLS, f"{results} does not answer {CALLS} calls")
    for call, result in zip(calls, results["content"]):
        require(result["type"] == "tool_result", f"{result} comes before the results")
        require(result["tool_use_id"] == call["id"], f"{result} does not answer {call['id']}")
    texts = [block["text"] for result in results["content"] for block in result["content"]]
    return [{"type": "text", "text": final_text(texts)}]


def anthropic_answer(body: dict[str, Any]) -> dict[str, Any]:
    content = anthropic_content(body)
    reason = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
    return {
        "id": "msg_stub",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


class ModelStub(ThreadingHTTPServer):
    """Serves on a free port of the loopback while its `with` lasts."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server_port}"
        # Requests that were answered, and what the others did wrong.
        self.answered = 0
        self.refused: list[str] = []

    def __enter__(self) -> "ModelStub":
        Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Answering(BaseHTTPRequestHandler):
    server: ModelStub
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            answer = self.answer(body)
            status = 200
            self.server.answered += 1
        except (Refused, KeyError, IndexError, TypeError) as error:
            self.server.refused.append(f"{self.path}: {error!r}")
            answer = {"error": {"type": "invalid_request_error", "message": repr(error)}}
            status = 400
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        # Both SDKs send their key so.
        require(self.headers["Authorization"] == f"Bearer {KEY}", "the key is another")
        if self.path == "/v1/chat/completions":
            return openai_completion(body)
        if self.path == "/v1/messages":
            return anthropic_answer(body)
        raise Refused("there is nothing at this path")

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: what went wrong is in `refused`."""
