"""An agent loop with Anthropic's SDK; the tools run on a fleet.

Usage: anthropic_loop.py MODEL QUESTION
Environment: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, TOOLFLEET_SERVER (default
http://127.0.0.1:8080).
"""

import os
import sys
import time
import uuid
from typing import Any

import httpx2
from anthropic import Anthropic

TURNS_MAX = 20
TOKENS_MAX = 4096
ATTEMPTS_MAX = 8
TRY_LATER = 429
PAUSE_S_MAX = 5.0
# Of silence: the fleet sends a byte every 4 s, however long the calls take.
TIMEOUT_S = 30.0
SERVER = os.environ.get("TOOLFLEET_SERVER", "http://127.0.0.1:8080")

fleet = httpx2.Client(base_url=SERVER, timeout=TIMEOUT_S)


def run_tools(execution: str, turn: str, message: str) -> list[Any]:
    """Hands in the model's message, JSON as it came; returns the one message that follows it.

    A lost connection does not tell whether the calls run. To post again under the same turn name is
    safe: it attaches to what runs or has run and starts none of it again, so a write stays one.
    """
    path = f"/v1/executions/{execution}/turns"
    params = {"turn": turn, "format": "anthropic"}
    headers = {"Content-Type": "application/json"}
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            answer = fleet.post(path, params=params, content=message, headers=headers)
            if answer.is_client_error and answer.status_code != TRY_LATER:
                raise RuntimeError(f"{turn} was refused: {answer.text}")
            if answer.is_success and answer.json()["state"] == "done":
                return answer.json()["messages"]
            reason = answer.text
        except httpx2.TransportError as error:
            reason = repr(error)
        print(f"{turn}, attempt {attempt}: not answered: {reason}", file=sys.stderr)
        time.sleep(min(0.25 * 2**attempt, PAUSE_S_MAX))
    raise RuntimeError(f"{turn} of {execution} was not answered in {ATTEMPTS_MAX} attempts")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: anthropic_loop.py MODEL QUESTION")
    model, question = sys.argv[1:]
    client = Anthropic()
    listed = fleet.get("/v1/tools", params={"format": "anthropic"}).raise_for_status()
    tools = listed.json()["tools"]
    # Names the conversation in the fleet. A loop that keeps it with its messages can be restarted.
    execution = f"chat-{uuid.uuid4()}"
    messages: list[Any] = [{"role": "user", "content": question}]
    for number in range(1, TURNS_MAX + 1):
        message = client.messages.create(
            model=model, max_tokens=TOKENS_MAX, messages=messages, tools=tools
        )
        if message.stop_reason != "tool_use":
            print("".join(block.text for block in message.content if block.type == "text"))
            return
        # All blocks go back untouched: thinking is signed.
        messages.append({"role": "assistant", "content": message.content})
        messages += run_tools(execution, f"turn-{number}", message.to_json())
    sys.exit(f"{execution} did not end in {TURNS_MAX} turns")


if __name__ == "__main__":
    main()
