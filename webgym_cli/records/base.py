"""The base of all records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def moment_of(text: str) -> datetime:
    """Return a stored moment in UTC. Raises `ValueError` when the text is none, or has no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error


def _check(text: str) -> str:
    moment_of(text)
    return text


# A moment as ISO 8601 with its zone: kept as it was written, so a record goes back to the same bytes.
Moment = Annotated[str, AfterValidator(_check)]


class Record(BaseModel):
    """A frozen record. Unknown fields are refused: a record that we can't represent must not lose data silently."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="strings",  # JSON has no infinity; null would not be read back
    )


class StoredRecord(Record):
    """A record that tells the version of its form."""

    schema_: Literal[1] = Field(default=1, alias="schema")

    model_config = ConfigDict(populate_by_name=True)

    def to_line(self) -> str:
        """Return the stored form: one line of JSON without a line end."""
        return self.model_dump_json(by_alias=True)
