"""Label of a person: whether an episode solved its task."""

from __future__ import annotations

from typing import Literal

from webgym_cli.records.base import Moment, StoredRecord

LabelValue = Literal["yes", "no", "unsure"]
LABELS: tuple[LabelValue, ...] = ("yes", "no", "unsure")


class EpisodeLabel(StoredRecord):
    """What one person said of one episode, one line of the store (`schema` 1)."""

    trajectory: str
    """The trajectory's id."""
    label: LabelValue
    """Whether the task was solved."""
    who: str
    """The person. Of several labels by one person the newest counts."""
    labelled_at: Moment
    """ISO 8601, UTC."""
