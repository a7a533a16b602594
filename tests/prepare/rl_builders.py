"""Trajectories as a server that tells its token ids leaves them, and runs filled with them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.records.builders import png, shot, trajectory
from webgym_cli.agent.client.policy import digest_tokens
from webgym_cli.agent.prompt import render_step
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.sampling import Sampling
from webgym_cli.records.task import Episode, Split, Task
from webgym_cli.records.tool import ToolCall
from webgym_cli.records.trajectory import Generation, Observation, PromptSpec, Step, ToolResult, Trajectory
from webgym_cli.store.buffer import append
from webgym_cli.store.run import RunDir
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.testing.tiny_model_build import CHAT_TEMPLATE, CONTROL, END, TAGS
from webgym_cli.util.files import write_lines

TOOLS = PromptSpec(tools=({"type": "function", "function": {"name": "calculator", "parameters": {}}},))
CALL = 'So:\n<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'
ANSWER = "It is \\boxed{42}."
PLAIN = Sampling(temperature=1.0, logprobs="processed")
GREEDY = Sampling(temperature=0.0, logprobs="processed")


def build_model(folder: Path) -> Path:
    """Make a model folder: the tiny model's template, and a byte-level tokenizer with some merges of its own."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([CALL, ANSWER, "calculator expression boxed the page changed"] * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in CONTROL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in TAGS])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    sizes = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 1024, "longest_edge": 1310720}}
    (folder / "preprocessor_config.json").write_text(json.dumps(sizes))
    return folder


def sampled(tokens: ModelTokens, text: str) -> list[int]:
    """Return the ids of a response with its stop token."""
    return [*tokens.response_ids(text), tokens.tokenizer.token_to_id(END)]


def served(attempt: Trajectory, tokens: ModelTokens, ids: dict[int, Sequence[int]] | None = None) -> Trajectory:
    """Return the trajectory with what our server told of each step. `ids`: other ids than those of a step's text.

    What it was sampled from is the model's own distribution unless the trajectory says otherwise.
    """
    done: list[Step] = []
    for number, step in enumerate(attempt.steps):
        so_far = attempt.model_copy(update={"steps": (*done, step)})
        prompt = render_step(so_far, number)
        shown = {seen.sha256: seen for one in so_far.steps for seen in one.observation.pictures}
        sizes = [(shown[sha256].width, shown[sha256].height) for sha256 in prompt.images]
        counts = tuple((ids or {}).get(number) or sampled(tokens, step.response))
        generation = Generation(
            prompt_token_digest=digest_tokens(tokens.prompt_ids(prompt.messages, sizes)),
            token_ids=counts,
            logprobs=tuple(-(number + 1) / 8 - place / 1024 for place in range(len(counts))),
        )
        done.append(step.model_copy(update={"prompt_digest": prompt.digest, "generation": generation}))
    return attempt.model_copy(update={"steps": tuple(done), "sampling": attempt.sampling or PLAIN})


def talk(number: int = 0, *responses: str, pictures: Sequence[int | None] = (), **changes: Any) -> Trajectory:
    """Return a conversation with a tool: each response but the last calls it. `pictures`: widths of results' images."""
    texts = responses or (CALL, ANSWER)
    call = Action(name=ActionName.CALL, calls=(ToolCall(name="calculator", arguments={"expression": "6*7"}),))
    steps, seen = [], Observation(url="")
    for index, response in enumerate(texts):
        last = index == len(texts) - 1
        action = Action(name=ActionName.ANSWER, text=response) if last else call
        steps.append(Step(index=index, observation=seen, response=response, action=action, prompt_digest="0" * 64))
        width = pictures[index] if index < len(pictures) else None
        image = shot(index, width) if width else None
        seen = Observation(url="", results=(ToolResult(name="calculator", text=f"{42 + index}", image=image),))
    task = Task(id=f"q{number}", instruction=f"How much is 6 times 7, question {number}?", environment="tools")
    values = {"task": task, "instruction": task.instruction, "prompt": TOOLS, "policy": "base", **changes}
    return trajectory(number, steps=tuple(steps), **values)


def episode(number: int, task: str = "", *, iteration: int = 0, position: int | None = None, **changes: Any) -> Episode:
    """Return a planned episode, whose stored trajectory is that of `talk(number)`."""
    name = f"train-{iteration:04d}-{number:05d}"
    place = {"position": number if position is None else position, "seed": 0, **changes}
    of = Task(id=task or f"q{number}", environment="tools")
    return Episode(id=name, split=Split.TRAIN, iteration=iteration, task=of, max_steps=3, **place)


def write_plan(run: RunDir, *episodes: Episode) -> None:
    """Write the plan of the episodes' iteration."""
    path = run.plan(Split.TRAIN, episodes[0].iteration)
    write_lines(path, (planned.model_dump(mode="json") for planned in episodes))


def store(run: RunDir, *trajectories: Trajectory, rank: int = 0) -> None:
    """Store trajectories, with all the pictures in them."""
    images = ScreenshotStore(run.screenshots)
    for attempt in trajectories:
        for step in attempt.steps:
            for picture in step.observation.pictures:
                size = picture.width, picture.height
                images.put(next(png(shade, *size) for shade in range(256) if shot(shade, *size) == picture))
        append(run, attempt, rank)


def changed(value: Trajectory, index: int, **changes: Any) -> Trajectory:
    """Return a trajectory one step of which is another."""
    steps = list(value.steps)
    steps[index] = steps[index].model_copy(update=changes)
    return value.model_copy(update={"steps": tuple(steps)})


def changed_generation(value: Trajectory, index: int, **changes: Any) -> Trajectory:
    return changed(value, index, generation=value.steps[index].generation.model_copy(update=changes))


def settings(model: Path | str = "model", *overrides: str) -> Settings:
    """Return settings with one episode a question."""
    return load(overrides=[f"policy_config.base_model={model}", *overrides])


def line_of(path: Path) -> list[dict[str, Any]]:
    """Return the values of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
