"""Settings `rl.data` and `rl.replay`: the contents of a policy-gradient batch. The text under a field is its help."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.endpoint import EndpointSettings
from webgym_cli.config.section import ConfigSection

# Grouping of episodes for group-relative advantages.
GroupBy = Literal["chain", "task", "start"]


class FilterGroupsSettings(ConfigSection):
    """Dynamic sampling (DAPO, arXiv 2503.14476): groups whose rewards are all equal are replaced by others."""

    enable: bool | None = None
    """Drop groups without reward variance and, with groups by `chain`, roll out others in their place. null: for the
    estimators that compare within a group, whose gradient would be 0: `grpo`, `rloo`, and `gigpo` with
    `rl.algorithm.gamma=1`."""
    max_num_gen_batches: int = Field(default=4, ge=1)
    """Maximum number of training episodes of an iteration, as a multiple of `rollout.episodes`; 1: no replacement."""


class RlDataSettings(ConfigSection):
    """The rows of a policy-gradient batch."""

    last_n_iterations: int = Field(default=1, ge=1)
    """Number of iterations in the batch, including the current one, without demonstrations. Above 1 the batch contains
    off-policy episodes."""
    group_by: GroupBy | None = None
    """Group of episodes whose rewards are compared, always within one iteration. `chain`: the episodes of one draw of a
    task: `agent.num_chains` in a row, each on its own seed, and the one of `agent.greedy_chain` (on MiniWoB and the
    fixture sites the chains run variants of the task; their mean is still a baseline that no single action influences).
    `task`: all episodes of a task, over all draws. `start`: all episodes of a task on the same seed, which differ by
    the policy's sampling only. null: `chain` if a drawn task has several episodes, else `task`."""
    filter_groups: FilterGroupsSettings = FilterGroupsSettings.model_construct()
    merge_turns: bool = True
    """Merge the steps of a trajectory into one row while each prompt starts with all tokens of the row. false: one row
    per step, as always with `gigpo`."""
    train_on_last_turn: bool = False
    """Train on the last response of each trajectory only; not with `webrl`."""
    max_row_tokens: int | None = Field(default=None, ge=2)
    """Maximum length of a row in tokens; a trajectory with a longer row is masked. null: the server's limit."""
    shaping: str = ""
    """A `@shaping` function: it makes the rewards of the batch from the stored ones, which don't change."""


# The inverse of a geometric mean of tokens' probabilities.
Perplexity = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class ReplaySettings(EndpointSettings):
    """The replay of earlier episodes in the batch of `train.algorithm=webrl`."""

    experience: tuple[str, ...] = ()
    """Run folders whose training episodes may be replayed beside this run's own iterations, such as demonstrations."""
    window: tuple[Perplexity, Perplexity | None] = (1 / 0.95, 1 / 0.5)
    """Range of the perplexity of a replayed action under the current policy, without its stop token: lower bound
    inclusive, upper bound exclusive (null: unbounded). The default is a mean token probability above 0.5 and up to
    0.95."""
    ratio: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Maximum number of replayed actions per action of the current iteration; 0: no replay and no scoring."""
    one_per_task: bool = True
    """Replay only the first successful episode of each task, in the order of `experience`, then of this run's
    iterations. A task is identified by its instruction and site."""
    base_url: str = ""
    """OpenAI base URL of a vLLM server of the policy; empty: the run's own server, which is started if needed."""
    model: str = ""
    """The policy's name on that server; empty: `serve.served_model_name`."""
    timeout: float = Field(default=300.0, gt=0)
    """Time limit of one request, in seconds."""

    @model_validator(mode="after")
    def _window_is_open(self) -> ReplaySettings:
        low, high = self.window
        if high is not None and high <= low:
            raise ValueError(f"window: no perplexity is from {low:g} on and below {high:g}")
        return self
