"""A fleet's tools in Pydantic AI, which keeps its own loop and calls them one by one.

Usage: pydantic_ai_tools.py MODEL QUESTION
Environment: OPENAI_API_KEY, OPENAI_BASE_URL, TOOLFLEET_SERVER (default http://127.0.0.1:8080).
"""

import asyncio
import os
import sys
from typing import Any

import httpx2
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.models.openai import OpenAIChatModel

ATTEMPTS_MAX = 8
TRY_LATER = 429
PAUSE_S_MAX = 5.0
# Of silence: the fleet sends a byte every 4 s, however long a call takes.
TIMEOUT_S = 30.0
SERVER = os.environ.get("TOOLFLEET_SERVER", "http://127.0.0.1:8080")


def fleet_tool(fleet: httpx2.AsyncClient, listed: dict[str, Any]) -> Tool[None]:
    """The adapter: a tool of the fleet as the framework knows tools."""
    name = listed["name"]

    # The context takes no name from the arguments.
    async def call(context: RunContext[None], /, **arguments: Any) -> str:
        # These three name the call, so that it can be posted again.
        named = {"executionId": context.run_id, "turn": f"step-{context.run_step}"}
        body = {**named, "callId": context.tool_call_id, "input": arguments}
        return await post(fleet, f"/v1/tools/{name}/call", body)

    description, schema = listed["description"], listed["inputSchema"]
    return Tool.from_schema(call, name, description, schema, takes_ctx=True)


async def post(fleet: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> str:
    """Returns what the model reads, which may be an error of the tool.

    A lost connection does not tell whether the call runs. To post again under the same names is
    safe: it attaches to what runs or has run and does not start it again, so a write stays one.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            answer = await fleet.post(path, json=body)
            if answer.is_client_error and answer.status_code != TRY_LATER:
                problem = answer.json()
                if problem["code"] == "invalid_input":
                    raise ModelRetry(problem["detail"])
                raise RuntimeError(f"{path} was refused: {answer.text}")
            if answer.is_success and "text" in answer.json():
                return answer.json()["text"]
            reason = answer.text
        except httpx2.TransportError as error:
            reason = repr(error)
        print(f"{path}, attempt {attempt}: not answered: {reason}", file=sys.stderr)
        await asyncio.sleep(min(0.25 * 2**attempt, PAUSE_S_MAX))
    raise RuntimeError(f"{path} was not answered in {ATTEMPTS_MAX} attempts")


async def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: pydantic_ai_tools.py MODEL QUESTION")
    model, question = sys.argv[1:]
    async with httpx2.AsyncClient(base_url=SERVER, timeout=TIMEOUT_S) as fleet:
        listed = (await fleet.get("/v1/tools")).raise_for_status().json()["tools"]
        tools = [fleet_tool(fleet, tool) for tool in listed]
        agent = Agent(OpenAIChatModel(model), tools=tools)
        print((await agent.run(question)).output)


if __name__ == "__main__":
    asyncio.run(main())
