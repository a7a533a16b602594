"""What the tokens were sampled from, and whether the stored log-probabilities are of just that."""

from __future__ import annotations

from collections.abc import Sequence

from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.prepare.rl.options import RlOptions
from webgym_cli.records.base import Record
from webgym_cli.store.metrics import events
from webgym_cli.store.run import RunDir

PROCESSED, RAW = "processed_logprobs", "raw_logprobs"
"""vLLM's modes that give log-probabilities; our server is started with the first."""
_FLAG = "--logprobs-mode"


class Sampling(Record):
    """The behaviour policy, beside its weights."""

    temperature: float
    """Above 0."""
    top_k: int
    """-1: all tokens."""
    top_p: float
    min_p: float

    @property
    def untouched(self) -> bool:
        """Whether the model's own distribution was sampled from: raw log-probabilities are then of it too."""
        return (self.temperature, self.top_k, self.top_p, self.min_p) == (1.0, -1, 1.0, 0.0)


def sampling_of(run: RunDir, settings: Settings, options: RlOptions) -> Sampling:
    """Return what the run's settings sample from: trajectories don't keep it.

    Raises `SettingsError` where the log-probabilities that a server gave can't be those of that distribution.
    """
    chosen = settings.policy_config
    sampling = Sampling(
        temperature=chosen.temperature,
        top_k=chosen.top_k if chosen.top_k > 0 else -1,
        top_p=chosen.top_p,
        min_p=chosen.min_p,
    )
    if sampling.temperature == 0:
        raise SettingsError(
            "policy_config.temperature: at 0 nothing is sampled, so no token has a log-probability to learn from",
            hint="webgym rollout RUN -s policy_config.temperature=1",
        )
    if not _processed(run, settings, options) and not sampling.untouched:
        raise SettingsError(
            f"policy_config: {_in_words(sampling)} was sampled with, but log-probabilities of a server that is not "
            "ours are taken for those before temperature, top_k, top_p and min_p",
            hint="roll out by rollout.policy=vllm, or with -s policy_config.temperature=1 -s policy_config.top_k=-1 "
            "-s policy_config.top_p=1 -s policy_config.min_p=0",
        )
    return sampling


def _processed(run: RunDir, settings: Settings, options: RlOptions) -> bool:
    """Whether the log-probabilities are of what was sampled from, whatever that was.

    The settings alone don't tell: `--policy URL` goes past them. So our server must have been started in this run.
    """
    if options.processed_logprobs is not None:
        return options.processed_logprobs
    if settings.rollout.policy != "vllm" or not any(events(run, "serve")):
        return False
    mode = _mode(settings.serve.extra_args)
    if mode not in (PROCESSED, RAW):
        raise SettingsError(
            f"serve.extra_args: {_FLAG} {mode} gives no log-probabilities", hint="leave it out, then roll out again"
        )
    return mode == PROCESSED


def _mode(extra_args: Sequence[str]) -> str:
    """Return the mode that our server works in: a user's own argument wins."""
    mode = PROCESSED
    for number, argument in enumerate(extra_args):
        name, given, value = argument.partition("=")
        if name.replace("_", "-") == _FLAG:
            mode = value if given else "".join(extra_args[number + 1 : number + 2])
    return mode


def _in_words(sampling: Sampling) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in sampling.model_dump().items())
