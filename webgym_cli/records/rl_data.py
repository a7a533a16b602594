"""What `prepare` hands to a training by policy gradients."""

from __future__ import annotations

from typing import Any

from webgym_cli.records.base import StoredRecord
from webgym_cli.records.sampling import Sampling

# The files of a batch.
ROWS, TRAJECTORIES, SUMMARY, DROPPED = "rows.jsonl", "trajectories.jsonl", "rl.json", "dropped.json"


class RlData(StoredRecord):
    """`rl.json`: written last, so its presence says that the batch is complete."""

    iteration: int
    """The iteration whose training this batch is for."""
    model_name: str
    """Name of the checkpoint that the training creates: `model_<YYYYmmdd_HHMMSS>`."""
    policy: str
    """The model that is trained: the checkpoint's name, or the base model."""
    model: str
    """Its path, or the base model's Hub id."""
    sampling: Sampling
    trained: int
    """Trajectories that have rows."""
    rows: int
    current_rows: int | None = None
    """Rows from the iteration's own episodes; only with `webrl`."""
    replayed_rows: int | None = None
    """Rows from earlier experience; only with `webrl`."""
    tokens: int
    """Tokens of all rows."""
    trained_tokens: int
    """Tokens that the policy produced."""
    plan_digest: str
    """SHA-256 of the batch's sources and settings."""
    digest: str
    """SHA-256 of `rows.jsonl`."""

    def facts(self) -> dict[str, Any]:
        """Return it as JSON values, without what only `webrl` has where there is none."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
