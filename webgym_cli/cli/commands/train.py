"""`webgym train`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym_cli.cli.options import RunArg, StageOptions
from webgym_cli.util.text import format_count

if TYPE_CHECKING:
    from webgym_cli.cli.output import Output
    from webgym_cli.config.model import Settings
    from webgym_cli.store.run import RunDir


def train(run: RunArg, options: StageOptions) -> None:
    """Train the policy on the prepared data.

    Trains with LLaMA-Factory (train.algorithm=sft), by policy gradients, or by WebRL's actor-critic (webrl). An
    interrupted training continues. RUN/model.pt points to the new policy once it is complete.

    Examples:
      webgym train runs/a
      webgym train runs/a -s train.algorithm=grpo
      webgym train runs/a --dry-run --json | jq -r '.argv | join(" ")'

    Exit codes: 3, 4, 75.

    See also: webgym prepare, webgym rollout, webgym serve.
    """
    from webgym_cli.cli.stage import open_training, resolve, stage
    from webgym_cli.loop.training import plan_training
    from webgym_cli.loop.training import train as execute_training
    from webgym_cli.store.checkpoints import current

    directory, settings = resolve(run, options)
    output = open_training(directory, settings, options)
    plan = plan_training(directory, settings)
    _note_other_data(directory, settings, output)
    if options.dry_run:
        output.show(plan.to_json())
        return
    with stage("train", directory, settings, output) as at:
        at.execute(lambda context: execute_training(context, plan))
    if newest := current(directory):
        loss = "" if newest.loss is None else f", loss {newest.loss:.4g}"
        what = "outcome reward model" if directory.orm_of else "policy"
        output.note(
            f"{newest.name}: {format_count(newest.steps, 'step')}{loss}; the {what} is now version {newest.version}"
        )
    if judged := directory.orm_of:
        output.next_step(f"webgym score {judged.root} --orm {directory.model(settings)}")
    else:
        output.next_step(f"webgym rollout {run}")


def _note_other_data(run: RunDir, settings: Settings, output: Output) -> None:
    """Note that the data is not what changed settings make of the stored episodes: `webgym prepare` reads those."""
    from webgym_cli.store.run import saved_settings

    before = saved_settings(run)
    sections = ("seed", "algorithm_config", "filters", "rl")
    if run.orm_of is not None or all(getattr(before, name) == getattr(settings, name) for name in sections):
        return
    # Here, because it opens the index.
    from webgym_cli.cli.run_index import open_run_index
    from webgym_cli.loop.preparation import is_up_to_date

    with open_run_index(run, output, kept=False) as index:
        if not is_up_to_date(run, settings, index):
            message = "it was prepared with other settings, or of other episodes"
            output.note(f"the training data stays as it is: {message}; `webgym prepare {run.root}` makes it anew")
