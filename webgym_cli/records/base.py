"""Base classes of all records."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from webgym_cli.util.documented import DocumentedModel
from webgym_cli.util.text import map_texts, replace_surrogates


def moment_of(text: str) -> datetime:
    """Return a stored timestamp in UTC. Raises `ValueError` if it is invalid or has no time zone."""
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


# Timestamp in ISO 8601 with time zone; kept as written, so that a record serializes to the same bytes.
Moment = Annotated[str, AfterValidator(_check)]


def is_finite(value: Any) -> bool:
    """Whether a value is a number that a float can hold; integers of JSON may be larger."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


# What pydantic names by Python's types and its own words, in the words of the files that people write.
_EXPECTED = {
    "dict_type": "it should be a table of names and values",
    "model_type": "it should be a table of names and values",
    "list_type": "it should be a list",
    "tuple_type": "it should be a list",
    "extra_forbidden": "there is no such field",
}


def describe_problem(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, from one of the `errors()` of pydantic."""
    return _EXPECTED.get(problem["type"]) or str(problem["msg"]).removeprefix("Value error, ")


def describe_invalid(error: Exception, branches: Container[str] = ()) -> str:
    """Return the first problem of an invalid record: its field and the reason; the text of any other error.

    `branches`: types of a union, which pydantic names after the field; they are left out. Only for models without
    tables, whose keys may have the same names.
    """
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if part not in branches)
    return ": ".join(filter(None, (place, describe_problem(first))))


class Record(DocumentedModel):
    """A frozen record. Unknown fields are refused, since dropping them would lose data silently."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # A reward of NaN would be larger than every threshold in the index, and spread through every mean.
        allow_inf_nan=False,
        ser_json_inf_nan="strings",  # log-probabilities may be infinite: JSON has no infinity, null can't be read back
    )

    def to_storable(self, longest: int = sys.maxsize) -> Self:
        """Return the record without unpaired surrogates, which no file can hold, and its texts cut to `longest`."""
        with suppress(ValueError):  # an unpaired surrogate
            if len(self.model_dump_json()) <= longest:
                return self
        values = map_texts(self.model_dump(mode="json"), lambda text: text[:longest])
        return self.model_validate_json(replace_surrogates(json.dumps(values, ensure_ascii=False)))


class StoredRecord(Record):
    """A record with the version of its schema."""

    schema_: Literal[1] = Field(default=1, alias="schema")

    model_config = ConfigDict(populate_by_name=True)

    def to_line(self) -> str:
        """Return the record as one line of JSON without a line end."""
        try:
            return self.model_dump_json(by_alias=True)
        except ValueError:  # an unpaired surrogate
            return self.to_storable().model_dump_json(by_alias=True)
