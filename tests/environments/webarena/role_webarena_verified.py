"""Runs webarena-verified's own scorer, in the environment that it is installed in; it imports nothing of ours.

    python role_webarena_verified.py < JOB

JOB is {"sites": {"__SHOPPING__": address, ...}, "answers": [[task, values], ...], "addresses": [[task, address], ...]}:
what an agent found, and the address of the last page that it came to. The last line of stdout is
{"answers": [verdict, ...], "addresses": [verdict, ...]}, each "success", "failure" or "error".

    python role_webarena_verified.py tasks

prints {"theirs": its tasks, "original": WebArena's own ones, which it ships too}.
"""

import json
import logging
import sys
from importlib.resources import files

PAGE = {"request": {"method": "GET"}, "response": {"status": 200, "redirectURL": "", "content": {}}}


def tasks() -> dict:
    folder = files("webarena_verified") / "assets" / "dataset"
    names = {"theirs": "webarena-verified.json", "original": "test.raw.json"}
    return {name: json.loads((folder / file).read_text(encoding="utf-8")) for name, file in names.items()}


def trace(address: str) -> list[dict]:
    """The network's part of an episode that opened one page."""
    request = {**PAGE["request"], "url": address, "headers": [{"name": "accept", "value": "text/html"}]}
    return [{**PAGE, "request": request}]


def verdicts(job: dict) -> dict:
    from webarena_verified.api import WebArenaVerified
    from webarena_verified.types.config import WebArenaVerifiedConfig

    logging.disable(logging.CRITICAL)
    sites = {name: {"urls": [address]} for name, address in job["sites"].items()}
    scorer = WebArenaVerified(config=WebArenaVerifiedConfig(environments=sites))

    def verdict(task: int, kind: str, values: list | None, address: str) -> str:
        fields = {"task_type": kind, "status": "SUCCESS", "retrieved_data": values}
        return scorer.evaluate_task(task_id=task, agent_response=fields, network_trace=trace(address)).status

    anywhere = next(iter(job["sites"].values()))
    return {
        "answers": [verdict(task, "RETRIEVE", values, anywhere) for task, values in job["answers"]],
        "addresses": [verdict(task, "NAVIGATE", None, address) for task, address in job["addresses"]],
    }


if __name__ == "__main__":
    answer = tasks() if sys.argv[1:] == ["tasks"] else verdicts(json.load(sys.stdin))
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
