"""WebRL's processing on the real vLLM: an action's log-probabilities as a prompt are those that it was sampled with."""

import json

import pytest

from tests.prepare.rl_builders import episode, line_of, store, talk, write_plan
from tests.records.builders import trajectory
from webgym_cli.agent.client.chat_request import EncodedImages
from webgym_cli.agent.client.policy import ChatPolicy
from webgym_cli.agent.prompt import render
from webgym_cli.config.load import load
from webgym_cli.loop import preparation
from webgym_cli.loop.context import StageContext
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import Observation, ParseErrorKind, PromptSpec, PromptVersion, Step
from webgym_cli.store.run import RunDir, create_or_open

pytestmark = pytest.mark.stack

SPEC = PromptSpec(version=PromptVersion.WEBRL)
STEPS = 3
TOLERANCE = 1e-3
"""Nats a token: what one pass over all tokens and one token after the other may differ by, in float32."""


def page(number, index):
    """A page of some hundred tokens, another one for each step."""
    links = " ".join(f'<a id="{one}"> Offer {one} of page {number}.{index} </a>' for one in range(12))
    return Observation(url=f"http://shop.test/{number}/{index}", title=f"Page {index}", html=f"<body> {links} </body>")


@pytest.fixture
async def policy(policy_server):
    plain = ("temperature=1", "top_k=-1", "top_p=1", "min_p=0", "max_new_tokens=40")
    settings = load(overrides=[f"policy_config.{one}" for one in plain])
    images = EncodedImages(lambda sha256: b"")
    endpoint = settings.rollout.build_endpoint(policy_server.base_url, settings.serve.served_model_name)
    chat = ChatPolicy(endpoint, settings.policy_config, images, logprobs="processed")
    yield chat
    await chat.close()


async def sampled(policy, number):
    """Return an episode on pages of text, every reply sampled by the server."""
    task = Task(id=f"q{number}", instruction=f"Find offer {number}.", start_url="http://shop.test/")
    steps: list[Step] = []
    for index in range(STEPS):
        seen = page(number, index)
        prompt = render(SPEC, task.instruction, task.start_url, steps, seen)
        reply = await policy.reply(prompt)
        sent = {"prompt_digest": prompt.digest, "generation": reply.generation}
        unread = {"response": reply.text, "parse_error": ParseErrorKind.NO_TOOL_CALL}
        steps.append(Step(index=index, observation=seen, **unread, **sent))
    values = {"task": task, "instruction": task.instruction, "prompt": SPEC, "policy": "base"}
    attempt = trajectory(number, steps=0, sampling=policy.sampling(greedy=False), **values)
    return attempt.model_copy(update={"steps": tuple(steps)})


async def test_log_probs_of_stored_actions_are_the_sampler_s(policy, policy_server, tiny_model_dir, tmp_path):
    """Experience of another run, with a demonstration that nobody sampled: every row is told by the same server."""
    before, run = RunDir(tmp_path / "before"), RunDir(tmp_path / "run")
    given = [f"policy_config.base_model={tiny_model_dir}", "train.algorithm=webrl", "rl.replay.window=[1, null]"]
    given += ["rl.replay.ratio=100", f"rl.replay.base_url={policy_server.base_url}"]
    settings = load(overrides=[*given, f"rl.replay.experience={json.dumps([str(before.root)])}"])
    for each in (before, run):
        create_or_open(each, settings)
    earlier = [await sampled(policy, number) for number in range(4)]
    store(before, *earlier, talk(9, policy="oracle"))
    write_plan(run, episode(5))
    store(run, await sampled(policy, 5))
    async with StageContext(run, settings, tmp_path, lambda event: None) as context:
        prepared_record = await preparation.prepare(context)
    rows = [row for row in line_of(run.rl_data / "rows.jsonl") if row["replayed"]]
    shown = [row for row in rows if row["tokenized"]]
    by_name = {(one.id, step.index): step.generation for one in earlier for step in one.steps}
    compared = [(by_name[row["trajectory"], row["step"]], row) for row in rows if not row["tokenized"]]
    assert (prepared_record.current_rows, prepared_record.replayed_rows, len(shown)) == (STEPS, len(rows), 2)
    assert len(compared) >= 2 * STEPS  # all twelve, unless a part of an image was sampled
    for generation, row in compared:
        assert tuple(row["input_ids"][-len(generation.token_ids) :]) == generation.token_ids
        differences = [abs(one - other) for one, other in zip(generation.logprobs, row["logprobs"], strict=True)]
        assert max(differences) < TOLERANCE
        assert row["perplexity"] > 2  # its weights are random
    assert all(row["perplexity"] > 2 for row in shown)
