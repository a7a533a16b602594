"""Sampling parameters of a batch, which must be the same for all trajectories and their log-probabilities."""

from __future__ import annotations

from collections import Counter
from typing import Any

from webgym_cli.errors import SettingsError
from webgym_cli.records.sampling import Sampling
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir
from webgym_cli.util.text import and_more

_SAMPLED = """
SELECT sampling, count(*) AS count, min(id) AS first, arg_min(policy, id) AS policy
FROM rl_batch WHERE reason IS NULL AND NOT greedy GROUP BY sampling ORDER BY count DESC, first
"""


def require_one_sampling(run: RunDir, index: Index) -> Sampling:
    """Return the common sampling parameters of all trajectories that are to be trained.

    Raises `SettingsError` if they are unknown or differ, if decoding was greedy, and if the log-probabilities can't be
    those of the sampling distribution.
    """
    samplings: Counter[Sampling] = Counter()
    for row in index.rows(_SAMPLED):
        sampling = _read_sampling(run, row)
        if sampling.logprobs != "processed" and not sampling.untouched:
            raise _of_another(sampling)
        samplings[sampling.model_copy(update={"logprobs": "processed"})] += row["count"]
    if len(samplings) > 1:
        counts = ", ".join(f"{count} from {_in_words(sampling)}" for sampling, count in samplings.most_common())
        raise SettingsError(
            f"{run.root}: the trajectories of the batch were not all sampled from the same distribution ({counts}): "
            "their log-probabilities do not compare",
            hint="train on what one setting sampled: -s rl.data.last_n_iterations=1, or roll out again in another run",
        )
    return next(iter(samplings))


def _read_sampling(run: RunDir, row: dict[str, Any]) -> Sampling:
    """Return the sampling parameters of some trajectories. Raises `SettingsError` if unknown or greedy."""
    which = f"{row['first']}{and_more(row['count'])}"
    if row["sampling"] is None:
        raise SettingsError(
            f"{run.root}: what {which} was sampled from is not known (policy {row['policy']}): it was imported, or an "
            "older version stored it",
            hint="roll out again in another run; from what is there only imitation can learn (webgym prepare RUN)",
        )
    sampling = Sampling.model_validate(row["sampling"])
    if sampling.greedy:
        raise SettingsError(
            f"policy_config.temperature: {which} was rolled out at 0, where nothing is sampled: no token has a "
            "log-probability to learn from",
            hint="webgym rollout ANOTHER_RUN -s policy_config.temperature=1",
        )
    return sampling


def _of_another(sampling: Sampling) -> SettingsError:
    if sampling.logprobs == "raw":
        whose = "the log-probabilities are those before all of that (serve.extra_args: --logprobs-mode raw_logprobs)"
    else:
        whose = (
            "log-probabilities of a server that is not ours are taken for those before temperature, top_k, top_p and "
            "min_p"
        )
    return SettingsError(
        f"policy_config: {_in_words(sampling)} was sampled with, but {whose}",
        hint="roll out by rollout.policy=vllm without such an argument, or with -s policy_config.temperature=1 "
        "-s policy_config.top_k=-1 -s policy_config.top_p=1 -s policy_config.min_p=0",
    )


def _in_words(sampling: Sampling) -> str:
    values = sampling.model_dump(exclude={"logprobs"})
    return ", ".join(f"{name}={value:g}" for name, value in values.items())
