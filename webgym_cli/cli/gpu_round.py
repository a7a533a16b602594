"""One round of serving, training and new weights with a tiny random model: shows that both environments use the GPU."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym_cli.config.load import load
from webgym_cli.config.model import Settings
from webgym_cli.errors import JobError
from webgym_cli.jobs.gpu import open_nvml
from webgym_cli.jobs.process import Job, last_line
from webgym_cli.prepare.rl.execute import open_batch, write_summary
from webgym_cli.prepare.rl.rows import ServedTurn, build_rows
from webgym_cli.records.sampling import Sampling
from webgym_cli.serve.client import IMAGE_SIDE, known_image
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.plan import plan_servers
from webgym_cli.testing.tiny_model import build_tiny_model
from webgym_cli.train.policy_gradient.backend import MODULE
from webgym_cli.train.trainer_log import TRAINER_LOG
from webgym_cli.util.files import write_json
from webgym_cli.util.optional import when
from webgym_cli.venvs.locate import role_python, trainer_environ

ANSWERS = 8
# Timeout of training on a few tokens, including the start of torch, in seconds.
TRAINING_SECONDS = 300.0
# One small server on one GPU, independent of the user's settings.
SERVING = (
    "serve.port=0",
    "serve.replicas=1",
    "serve.max_model_len=2048",
    "serve.max_num_seqs=8",
    "serve.gpu_memory_utilization=0.3",
    "policy_config.max_new_tokens=64",
    "image.image_max_pixels=65536",
)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Times of a round, and the difference between trainer and server log-probs."""

    seconds: dict[str, float]
    """Of each part, by name."""
    how: str
    """How the new weights came into the server: `in_place` or `restart`."""
    reason: str
    """Why not in place."""
    mismatch_kl: float
    """Between the server's policy and the trainer's on the sampled tokens, in nats."""

    def __str__(self) -> str:
        """Format the result as text."""
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return f"{parts}; weights {self.how.replace('_', ' ')}; mismatch KL {self.mismatch_kl:.2g}"


async def run_round(settings: Settings, folder: Path) -> RoundResult:
    """Serve, sample with an image, train on the samples, serve the result. Raises `WebGymError` on failure."""
    own = load(overrides=SERVING).model_copy(update={"venvs": settings.venvs})
    model = await asyncio.to_thread(build_tiny_model, folder / "model", own)
    plan = plan_servers(own, str(model), role_python(own, "serve"), "cuda", phases=True)[0]
    events: list[dict[str, Any]] = []
    server = PolicyServer(plan, folder, lambda event: events.append(dict(event)), nvml=open_nvml("cuda"))
    try:
        await server.start()
        log = await train_once(server, role_python(own, "train"), folder)
    finally:
        await server.stop()
    return summarize(events, log)


async def train_once(server: PolicyServer, python: Path, folder: Path) -> dict[str, Any]:
    """Train on the responses of a running server and load the new weights into it.

    Return the trainer's last log line, and its `seconds` with its start. `python`: the train role's interpreter. Raises
    `WebGymError`.
    """
    model, cpu = server.model, server.plan.device == "cpu"
    await _sample(server, folder / "data")
    await server.release_gpus()
    began = time.monotonic()
    log = await _train(python, model, folder, cpu=cpu)
    log["seconds"] = time.monotonic() - began
    await server.serve(str(folder / "out" / "checkpoint-1"))
    return log


def summarize(events: Sequence[Mapping[str, Any]], log: Mapping[str, Any]) -> RoundResult:
    """Summarize the events of a round and the trainer's log."""
    changed = [event for event in events if event["event"] in ("swap", "wake")]
    return RoundResult(
        {"training": float(log["seconds"])}
        | {str(event["event"]): float(event["seconds"]) for event in events if "seconds" in event},
        str(changed[-1]["how"]),
        next((str(event["reason"]) for event in events if "reason" in event), ""),
        float(log["rollout_corr/kl"]),
    )


async def _sample(server: PolicyServer, folder: Path) -> None:
    """Sample answers to a picture and write them as a batch for the trainer; every other one counts as a success."""
    import openai

    picture = {"type": "image_url", "image_url": {"url": known_image()}}
    parts: list[Any] = [picture, {"type": "text", "text": "Describe this."}]
    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=120) as client:
        try:
            answer = await client.chat.completions.create(
                model=server.plan.serve.served_model_name,
                messages=[{"role": "user", "content": parts}],
                n=ANSWERS,
                max_tokens=16,
                temperature=1,
                logprobs=True,
                extra_body={"return_token_ids": True},
            )
        except openai.OpenAIError as error:
            raise JobError(f"the server does not answer: {error}; log: {server.log}") from error
    _write_batch(folder, answer.model_dump())


def _write_batch(folder: Path, reply: dict[str, Any]) -> None:
    """Write a server's reply as a batch whose rows are of one group."""
    picture, size = "picture.png", (IMAGE_SIDE, IMAGE_SIDE)
    with open_batch(folder) as files:
        for number, choice in enumerate(reply["choices"]):
            logprobs = tuple(token["logprob"] for token in choice["logprobs"]["content"])
            turn = ServedTurn(0, reply["prompt_token_ids"], tuple(choice["token_ids"]), logprobs, (picture,), (size,))
            files.add_trajectory({"number": number, "group": 0, "reward": float(number % 2)})
            for row in build_rows([turn], merge=False):
                files.add_row({"number": number, **row.to_line([picture])})
    (folder / picture).write_bytes(base64.b64decode(known_image().partition(",")[2]))
    names = dict.fromkeys(("model_name", "policy", "model", "plan_digest"), "")
    write_summary(folder, files, iteration=0, sampling=Sampling(temperature=1), trained=files.rows, **names)


async def _train(python: Path, model: str, folder: Path, *, cpu: bool) -> dict[str, Any]:
    """Run one optimizer step on the batch; return the last line of the trainer's log. Raises `JobError`."""
    config, log = folder / "launch.json", folder / "train.log"
    options = {
        "data": str(folder / "data"),
        "model": {"path": model},
        "trainer": {"output_dir": str(folder / "out")},
        "actor": {"optim": {"lr": 1e-3}},
    }
    write_json(config, options)
    env = trainer_environ(python) | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    env |= when(cpu, {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    training = Job.run((str(python), "-m", MODULE, str(config)), env=env, log=log)
    try:
        code = await asyncio.wait_for(training, TRAINING_SECONDS)
    except TimeoutError as error:
        raise JobError(f"the training of {ANSWERS} answers took more than {TRAINING_SECONDS:.0f} s") from error
    if code != 0:
        raise JobError(f"the training failed: {last_line(log, 'no message')}", returncode=code)
    line: dict[str, Any] = json.loads((folder / "out" / TRAINER_LOG).read_text(encoding="utf-8").splitlines()[-1])
    return line
