"""Trajectories for the judge's tests, and what a judge is made with."""

import json
from typing import Any

from tests.records.builders import png, shot, step, trajectory
from tests.rewards.scripted_judge import ScriptedJudgeServer, ScriptedReply
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.records.failure import Stop
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation, Outcome, Step, Trajectory

YES = json.dumps({"reason": "seen", "verdict": "yes"})
NO = json.dumps({"reason": "not seen", "verdict": "no"})
GARBAGE = "Verdict: SUCCESS"
DOWN = ScriptedReply(status=500)
ANSWER = "It was painted by Vermeer in 1665."
RUBRIC = ("The painter is Vermeer", "The year is 1665")
INSTRUCTION = "Find out who painted the portrait and when."
PICTURES = {shot(shade).sha256: png(shade) for shade in range(100)}


def seen(index: int, shade: int, title: str = "A portrait", **changes: Any) -> Step:
    """Return a step on a page of this title, with a screenshot of this shade."""
    observation = Observation(url=f"http://museum.test/{index}", title=title, screenshot=shot(shade))
    return step(index, **{"observation": observation, "response": "I look at the page.", **changes})


def answered(
    number: int = 0, *, answer: str = ANSWER, rubric: tuple[str, ...] = RUBRIC, shades: Any = range(3), **changes: Any
) -> Trajectory:
    """Return an answered episode of the open web, not judged yet."""
    values = {
        "task": web_task(rubric=rubric),
        "instruction": INSTRUCTION,
        "outcome": Outcome(stop=Stop.ANSWERED, answer=answer),
    }
    steps = changes.pop("steps", tuple(seen(index, shade) for index, shade in enumerate(shades)))
    return trajectory(number, steps=0, **{**values, **changes}).model_copy(update={"steps": steps})


def web_task(**changes: Any) -> Task:
    """Return a task of the open web."""
    values = {"id": "portrait", "instruction": INSTRUCTION, "start_url": "http://museum.test/", "environment": "web"}
    return Task.model_validate({**values, **changes})


def judge_settings(server: ScriptedJudgeServer, **changes: Any) -> JudgeSettings:
    """Return the settings of a judge behind this server, that asks nothing twice unless told."""
    values = {"base_url": server.base_url, "retries": 0, "timeout": 30, "api_key_env_var": "JUDGE_TEST_KEY"}
    return JudgeSettings.model_validate({**values, **changes})
