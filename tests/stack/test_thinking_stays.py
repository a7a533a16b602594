"""A model that thinks before it acts is trained and served as one in every iteration; its training is tracked."""

import asyncio
import shutil

import psutil
import pytest

from tests.agent.policy_host import PROMPT
from tests.records.builders import png, shot
from tests.stack_fixtures import needs
from tests.tracking.offline_file import segments
from tests.train.train_data import SMALL, prepare, rows
from tests.train.training import FIRST
from webgym_cli.agent.client.chat_request import EncodedImages
from webgym_cli.agent.client.policy import ChatPolicy
from webgym_cli.config.load import load
from webgym_cli.config.model_families import detect_model
from webgym_cli.errors import JobError
from webgym_cli.loop import training
from webgym_cli.loop.context import StageContext
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import plan_servers
from webgym_cli.store.run import RunDir, create_or_open, new_attempt, run_id

pytestmark = pytest.mark.stack
ASKS = "'<|im_start|>assistant\\n'"
THINKS = "'<|im_start|>assistant\\n<think>\\n'"
SERVED = ("serve.port=0", "serve.max_model_len=2048", "policy_config.max_new_tokens=24", "venvs.device=cpu")


@pytest.fixture(scope="module")
def thinker(tiny_model_dir, tmp_path_factory):
    """The tiny model with a chat template that opens the thought, as those of thinking models do."""
    folder = tmp_path_factory.mktemp("thinker") / "model"
    shutil.copytree(tiny_model_dir, folder)
    chat = folder / "chat_template.jinja"
    assert chat.read_text().count(ASKS) == 1
    chat.write_text(chat.read_text().replace(ASKS, THINKS))
    return folder


@pytest.fixture(scope="module")
def settings(thinker):
    small = [f"algorithm_config.{name}={value}" for name, value in SMALL.items() if value is not None]
    small = [text.replace("False", "false") for text in small]
    none = ["algorithm_config.deepspeed_config_filename=null", "algorithm_config.num_train_epochs=1"]
    none += ["algorithm_config.report_to=wandb"]
    return load(
        overrides=[f"policy_config.base_model={thinker}", *small, *none, *SERVED, f"venvs.train={needs('train')}"]
    )


@pytest.fixture(scope="module")
async def trained(settings, tmp_path_factory):
    """One training on responses with thoughts, tracked offline."""
    run, samples = RunDir(tmp_path_factory.mktemp("run") / "run"), rows(tmp_path_factory.mktemp("images"), 4)
    for sample in samples:
        reply = sample["conversations"][-1]  # those before it stand without their thoughts, as they are sent
        reply["value"] = f"<think>\nit is there\n</think>\n\n{reply['value']}"
    create_or_open(run, settings)
    prepare(run, settings, samples, FIRST)
    events = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        async with StageContext(run, settings, new_attempt(run), events.append) as context:
            await training.train(context)
    assert [event for event in events if event["event"] == "tracking_failed"] == []
    return run


@pytest.fixture
def folder(trained):
    return trained.checkpoints / FIRST


def test_trainer_and_webgym_write_into_one_tracked_run(settings, trained):
    trainer, webgym = segments(trained)
    assert {segment.run.run_id for segment in (trainer, webgym)} == {run_id(trained, settings)}
    assert {(segment.run.project, segment.run.display_name) for segment in (trainer, webgym)} == {("rl", "webgym-")}
    steps = [row["train/global_step"] for row in trainer.history if "train/loss" in row]
    assert steps == [1]
    assert trainer.axes["*"] == "train/global_step"
    (summary,) = webgym.history
    assert (summary["iteration"], summary["train/optimizer_steps"]) == (0, 1)
    assert summary["train/mean_loss"] > 0


def test_a_checkpoint_keeps_the_chat_template_of_its_base(thinker, folder):
    for name in ("chat_template.jinja", "generation_config.json", "tokenizer.json"):
        assert (folder / name).exists() == (thinker / name).exists()
    assert (folder / "chat_template.jinja").read_text() == (thinker / "chat_template.jinja").read_text()
    known = detect_model(str(folder))
    assert (known.family.template_for(thinking=known.is_reasoning), known.is_reasoning) == ("qwen3_vl", True)


async def test_its_server_opens_the_thought_answers_it_whole_and_ends_with_its_engine(settings, folder, tmp_path):
    plans = plan_servers(settings, str(folder), needs("serve"), "cpu", phases=True)
    fleet = Fleet(plans, tmp_path, lambda event: None)
    try:
        await fleet.serve(str(folder))
        images = EncodedImages({shot(0).sha256: png(0)}.__getitem__)
        (url,) = fleet.base_urls
        policy = ChatPolicy(settings.rollout.build_endpoint(url, "policy"), settings.policy_config, images)
        reply = await policy.reply(PROMPT)
        await policy.close()
        processes = psutil.Process(fleet.servers[0].pid).children(recursive=True)
        # the engine alone, the youngest: the server that answers HTTP must end with it
        max(processes, key=lambda process: process.create_time()).kill()
        with pytest.raises(JobError):
            await asyncio.wait_for(fleet.watch(), 300)
    finally:
        await fleet.stop()
    assert len(reply.generation.token_ids) <= 24 and reply.text.startswith("<think>\n")
    assert reply.generation.finish_reason == "length"
    assert "</think>" not in reply.text  # what was cut within its thought stays open
