"""TRL's environment hook, in TRL's own environment: its reset of a batch and its calls of tools, without a model.

Reads a job from stdin: the page's class, the address, the rows of a batch, and the answer of each rollout.
"""

import json
import sys
from types import SimpleNamespace

from trl import GRPOTrainer


class Generated(Exception):
    """TRL would now ask its model."""


def stop(*given):
    raise Generated


def call(function, **arguments):
    function = {"name": function, "arguments": arguments}
    return [{"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}]


def generate(prompts):
    """Call two tools in each rollout, as the model's completions would."""
    seen.extend(prompts)
    nothing = [[] for _ in prompts]
    for completions in ([call("click", element_id=999)] * len(prompts), [call("answer", text=it) for it in answers]):
        try:
            trainer._tool_call_loop(prompts, nothing, nothing, completions, None, None, {})
        except Generated:
            continue
    stop()


def describe(message):
    content = message.get("content")
    return content if isinstance(content, str) else [part.get("text") or part["image"].format for part in content or ()]


job = json.load(sys.stdin)
exec(job["code"].replace("http://127.0.0.1:8920", job["address"]), globals())
answers, seen = job["answers"], []
trainer = object.__new__(GRPOTrainer)
first = WebEnvironment()  # noqa: F821  the page's
vars(trainer).update(
    accelerator=SimpleNamespace(device="cpu"),
    model=SimpleNamespace(training=True),
    environment_factories={None: type(first)},
    max_tool_calling_iterations=1,
    tools=[first.click, first.answer],
    _multi_environment=False,
    _environment_pool={None: [first]},
    _standalone_tools=[],
    _generate=generate,
    _get_tool_suffix_ids=stop,
)
try:
    trainer._generate_and_score_completions(job["rows"])
except Generated:
    rewards = [environment.get_reward() for environment in trainer.environments]
    json.dump({"rollouts": [list(map(describe, prompt)) for prompt in seen], "rewards": rewards}, sys.stdout)
