"""Runs the client examples against a coordinator, with a stand-in for the model.

Usage: check.py URL, where the coordinator offers the tools of examples/tools.
Each example runs through a relay that loses the first answer to every POST, and once more with a
model that makes a mistake. Prints "clients: ok", or what differs and exits with 1.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from lossy_relay import LossyRelay
from model_stub import CALLS, CLUMSY, KEY, ModelStub

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "clients"
# (example, POSTs to the fleet: one for a turn, or one for a call).
CLIENTS = [("openai_loop.py", 1), ("anthropic_loop.py", 1), ("pydantic_ai_tools.py", CALLS)]
QUESTION = "A table for six in Lisbon on 2031-05-17 at 19:30, and what will the weather be?"
TIMEOUT_S = 90.0

FORECAST = '{"city":"Lisbon","days":[{"day":1,"sky":"sunny","highC":24,"lowC":16}'
BOOKED = re.compile(r"booked: 6 guests on 2031-05-17 at 19:30, confirmation TR-(\d+)")
MISTAKE = "invalid input: days: expected integer, got string"


class Differs(Exception):
    """An example did something else than its text says."""


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Differs(text)


def run(example: str, model: str, fleet: str, stub: ModelStub) -> str:
    """What an example prints, after it ended well and the model's API had nothing to object."""
    env = {
        "PATH": os.environ.get("PATH", ""),
        "NO_PROXY": "*",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOOLFLEET_SERVER": fleet,
        "OPENAI_BASE_URL": f"{stub.url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": stub.url,
        "ANTHROPIC_API_KEY": KEY,
    }
    command = [sys.executable, str(EXAMPLES / example), model, QUESTION]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    told = f"{example} {model}: {ended.stdout}{ended.stderr}"
    expect(not stub.refused, f"{example} {model}: the model's API refused {stub.refused}")
    expect(ended.returncode == 0, f"exit code {ended.returncode} of {told}")
    expect(stub.answered == 2, f"{stub.answered} answers of the model instead of 2: {told}")
    return ended.stdout


def check_posted_again(example: str, lost: dict[str, Any], again: dict[str, Any]) -> None:
    """The second answer is the first one, recorded: no call ran for it."""
    expect(lost["replayed"] is False, f"{example}: the lost answer was recorded before: {lost}")
    expect(again["replayed"] is True, f"{example}: what was posted again ran again: {again}")
    for key in ["messages", "text"]:
        expect(lost.get(key) == again.get(key), f"{example}: {lost} is not {again}")
    for call in again.get("calls", [again]):
        expect(call["attempts"] == 1, f"{example}: a call took several attempts: {call}")


def check_lost_answers(url: str, example: str, posts: int) -> str:
    """Returns the number of the booking."""
    with ModelStub() as stub, LossyRelay(url) as relay:
        said = run(example, "steady", relay.url, stub)
        expect(len(relay.lost) == posts, f"{example}: POSTs are {list(relay.lost)}, not {posts}")
        expect(relay.lost.keys() == relay.arrived.keys(), f"{example}: some were not posted again")
        for path, lost in relay.lost.items():
            check_posted_again(example, lost, relay.arrived[path])
    expect(FORECAST in said, f"{example}: no forecast in {said!r}")
    booked = BOOKED.findall(said)
    expect(len(booked) == 1, f"{example}: {len(booked)} bookings in {said!r}")
    return booked[0]


def check_mistake(url: str, example: str) -> None:
    """The model is told of its mistake, and the call beside it is made."""
    with ModelStub() as stub:
        said = run(example, CLUMSY, url, stub)
    expect(MISTAKE in said, f"{example}: the model was not told of its mistake: {said!r}")
    expect(len(BOOKED.findall(said)) == 1, f"{example}: no booking in {said!r}")


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: check.py URL", file=sys.stderr)
        return 2
    try:
        numbers = [check_lost_answers(sys.argv[1], example, posts) for example, posts in CLIENTS]
        # A booking's number is made from its call's idempotency key.
        expect(len(set(numbers)) == len(CLIENTS), f"two conversations share a call: {numbers}")
        for example, _ in CLIENTS:
            check_mistake(sys.argv[1], example)
    except (Differs, subprocess.TimeoutExpired) as difference:
        print(f"clients: {difference}", file=sys.stderr)
        return 1
    except (KeyError, TypeError, ValueError) as error:
        print(f"clients: an answer does not read: {error!r}", file=sys.stderr)
        return 1
    print("clients: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
