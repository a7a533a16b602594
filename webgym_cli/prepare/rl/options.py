"""What a batch is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError


class GroupBy(StrEnum):
    """Which episodes are compared with one another. Groups never reach over iterations: those have other policies."""

    CHAIN = "chain"
    """Those of one draw: a task that was drawn comes `agent.num_chains` times in a row, on a seed of its own each
    time, and with `agent.greedy_chain` once more. For tools the seed changes nothing; on MiniWoB and the fixture sites
    the chains meet variants of the task, and their mean is a baseline that no single action had a part in all the
    same."""
    TASK = "task"
    """All of the same task, in however many draws."""
    START = "start"
    """Those of the same task on the same seed: nothing but the policy's sampling tells them apart."""


@dataclass(frozen=True, slots=True)
class RlOptions:
    """How a batch is made. Raises `UsageError` for numbers that can't be."""

    last_n_iterations: int = 1
    """Iterations that are read, the current one included. Above 1 there are episodes of older policies among them,
    which each trajectory names."""
    group_by: GroupBy | None = None
    """None: `chain` where a task that is drawn comes several times (`agent.num_chains`, `agent.greedy_chain`), else
    `task`."""
    merge_turns: bool = True
    """Put the steps of a trajectory into one row as long as each prompt begins with all that the row has so far. False:
    a row a step."""
    max_row_tokens: int | None = None
    """Longest row; a trajectory with a longer one is masked. None: whatever the server took."""

    def __post_init__(self) -> None:
        """Refuse what can't be."""
        if self.last_n_iterations < 1:
            raise UsageError(f"last_n_iterations must be 1 or more, not {self.last_n_iterations}")
        if self.max_row_tokens is not None and self.max_row_tokens < 2:
            raise UsageError(f"max_row_tokens must be 2 or more, not {self.max_row_tokens}: a prompt and a response")

    def grouping(self, settings: Settings) -> GroupBy:
        """Return which episodes are compared."""
        if self.group_by is not None:
            return self.group_by
        return GroupBy.CHAIN if settings.agent.group_size > 1 else GroupBy.TASK
