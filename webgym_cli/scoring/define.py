"""The class `Reward`, and the decorator that makes a reward function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Complex, Real
from typing import Any, SupportsFloat, overload

from webgym_cli.scoring.user_function import UserFunction
from webgym_cli.util.optional import known_or

# Arguments that every episode offers in addition to its record's fields: text of the last message; messages in
# OpenAI's format; the task's id; the question. LIVING are objects, not data: the tools' context; the judge model.
LIVING = ("context", "judge")
OFFERED = ("final_response", "trajectory", "id", "question", *LIVING)


@dataclass(frozen=True, slots=True)
class RewardResult:
    """Parsed return value of a reward function."""

    reward: float
    """The reward as returned, to 12 decimals."""
    extras: dict[str, Any]
    """All other returned values."""

    def numbers(self) -> dict[str, float]:
        """Return the extras that are numbers."""
        numbers = {key: _to_float(value) for key, value in self.extras.items()}
        return {key: number for key, number in numbers.items() if number is not None}


@dataclass(frozen=True)
class Reward(UserFunction):
    """A reward function; arguments are passed by name. A call in Python calls the decorated function."""

    noun = "reward"
    offered = OFFERED
    living = LIVING
    hides_fields = True


@overload
def reward(decorated: Callable[..., Any], /) -> Reward: ...


@overload
def reward(*, name: str | None = None) -> Callable[[Callable[..., Any]], Reward]: ...


def reward(
    decorated: Callable[..., Any] | None = None, /, *, name: str | None = None
) -> Reward | Callable[[Callable[..., Any]], Reward]:
    """Make a reward function from a function, sync or async.

    Arguments are passed by name: `final_response`, `trajectory`, `id`, `question`, `context` (the tools'
    `EpisodeContext`), `judge` and each field of the task's record (`answer`, ...). It returns a number, or a mapping
    with `reward` and other values to store. Raises `UsageError` for positional-only and `*args` parameters.
    """

    def decorate(given: Callable[..., Any]) -> Reward:
        return Reward.of(given, known_or(name, given.__name__))

    return decorate if decorated is None else decorate(decorated)


def parse_reward(value: Any) -> RewardResult:
    """Parse the return value of a reward function. Raises `ValueError` for an invalid one."""
    extras: dict[str, Any] = {}
    if isinstance(value, Mapping):
        if "reward" not in value:
            raise ValueError(f"its mapping has no reward, but {', '.join(map(str, value)) or 'nothing'}")
        extras = {str(key): item for key, item in value.items() if key != "reward"}
        value = value["reward"]
    if (number := _to_float(value)) is None:
        raise ValueError(f"a {type(value).__name__} is no reward")
    # NaN would spread through every mean of the run.
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no reward")
    result = RewardResult(round(number, 12), extras)  # 0.6 + 0.3 + 0.1 is a bit less than 1, other orders are more
    if bad := [key for key, item in result.numbers().items() if not math.isfinite(item)]:
        raise ValueError(f"the {bad[0]} of its mapping is not finite")
    return result


def _to_float(value: object) -> float | None:
    """Return a number, also one of numpy or `decimal`; NaN if no float can hold it, None for what is no number."""
    # Every scalar of numpy has a `__float__`: a text parses itself, and a complex number drops its imaginary part.
    if isinstance(value, str | bytes) or isinstance(value, Complex) > isinstance(value, Real):
        return None
    try:
        return float(value) if isinstance(value, SupportsFloat) else None
    except OverflowError:  # an integer of 400 digits
        return math.nan
    except (TypeError, ValueError, RuntimeError):  # an array, also of one text; a signalling NaN; a tensor of two
        return math.nan if isinstance(value, Decimal) else None
