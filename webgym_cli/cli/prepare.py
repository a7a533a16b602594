"""`webgym prepare`."""

from __future__ import annotations

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, RunArg, SetOpt
from webgym_cli.cli.output import Output


def prepare(
    run: RunArg, config: ConfigOpt = None, set_: SetOpt = None, json: JsonOpt = False, dry_run: DryRunOpt = False
) -> None:
    """Make of the replay buffer what the policy is trained on.

    With train.algorithm=sft it draws a dataset, RUN/llamafactory_data: finetune_train.json, finetune_val.json,
    dataset_info.json, train_config.yaml, deepspeed.json, wandb_env.sh and dropped.json (what was left out, and why).
    Else it makes the iteration's batch for policy gradients, RUN/rl_data: rows.jsonl (tokens as they were sampled),
    trajectories.jsonl (rewards and groups), rl.json, dropped.json.

    Examples:
      webgym prepare runs/a
      webgym prepare runs/a -s algorithm_config.positive_samples_to_train=600
      webgym prepare runs/a --dry-run --json | jq .dropped_steps

    Exit codes: 3, 75.

    See also: webgym inspect-buffer, webgym train, webgym export-sharegpt.
    """
    from webgym_cli.cli.index import opened
    from webgym_cli.cli.stage import resolve, stage
    from webgym_cli.jobs.signals import run_async
    from webgym_cli.loop.pipeline import Pipeline
    from webgym_cli.loop.preparation import plan_preparation, preparation_in_words
    from webgym_cli.records.dataset import Prepared
    from webgym_cli.records.rl_data import RlData
    from webgym_cli.store.run import open_run

    open_run(run)
    directory, settings = resolve(run, config, set_)
    output = Output.for_events(json)
    if dry_run:
        with opened(directory, output, kept=False) as index:
            output.show(plan_preparation(directory, settings, index).to_json())
        return
    with stage("prepare", directory, settings, output) as at:

        async def work() -> Prepared | RlData:
            async with Pipeline(at.run, at.settings, at.logs, at.sink) as pipeline:
                return await pipeline.prepare(again=True)

        prepared = run_async(work())
    output.note(preparation_in_words(prepared, directory))
    output.next_step(f"webgym train {run}")
