"""An environment as a user writes one: a dial that is turned by calls of its own and seen as a text and a picture.

The tests copy this file out of the repository; it imports nothing of theirs.
"""

import asyncio
import io
import os

from webgym_cli.environments.base import EnvironmentStep, RawObservation
from webgym_cli.environments.registry import ENVIRONMENTS, EnvironmentSpec
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.task import Task
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import Score
from webgym_cli.tools.toolbox import CallResult

TURN = {
    "type": "function",
    "function": {
        "name": "turn",
        "description": "Turns the dial.",
        "parameters": {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]},
    },
}


def picture(value):
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (64, 64), "white")
    ImageDraw.Draw(image).pieslice((4, 4, 60, 60), 0, 36 * value + 1, fill="black")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


class DialEnvironment:
    tools = (TURN,)

    def show(self):
        text = f"the dial shows {self.value}"
        return RawObservation(url="", title="", results=(CallResult("turn", text, image=picture(self.value)),))

    async def reset(self, task, seed):
        self.value, self.goal = 0, task.extra["goal"]
        return task.instruction, self.show()

    def resolve_task(self, task):
        return task

    async def step(self, action):
        await asyncio.sleep(float(os.environ.get("DIAL_PAUSE", "0")))
        if os.environ.get("DIAL_STUCK") == str(self.goal):
            await asyncio.sleep(3600)
        if action.name is not ActionName.CALL or action.calls[0].name != "turn":
            return EnvironmentStep(view=self.show(), action_error="only turn can be called")
        self.value = (self.value + int(action.calls[0].arguments["by"])) % 10
        if self.value == self.goal:
            return EnvironmentStep(view=None, done=True, score=Score(source="environment", value=1.0))
        return EnvironmentStep(view=self.show())

    async def answer(self, text):
        return Score(source="environment", value=0.0, detail="answers turn nothing")

    async def out_of_steps(self):
        return None

    async def expert_action(self):
        return Action(name=ActionName.CALL, calls=(ToolCall(name="turn", arguments={"by": 1}),))

    async def close(self):
        pass


class DialPool:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass

    def new(self):
        return DialEnvironment()


def list_tasks(argument):
    goals = range(1, 5) if argument == "all" else map(int, argument.split(","))
    return [
        Task(id=f"dial-{goal}", environment="dial", instruction=f"Turn it to {goal}.", extra={"goal": goal})
        for goal in goals
    ]


ENVIRONMENTS.register(
    "dial",
    EnvironmentSpec(
        name="dial",
        list_tasks=list_tasks,
        make_pool=lambda settings: DialPool(),
        require_expert=lambda settings, tasks: None,
        is_judged=lambda settings: settings.judge.protocol == "dial_turned",
        max_steps=lambda settings, task, split: settings.agent.max_turns,
    ),
)
