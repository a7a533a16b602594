"""Filters of trajectories and steps for training, as named SQL conditions in a fixed order. Pure.

The first matching filter gives the reason for a drop. Reasons that depend on a step's content (tokens, images) are
checked when the step is sampled; `list_content_reasons` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from webgym_cli.config.algorithm_config import AlgorithmSettings, FilterSettings
from webgym_cli.config.model import Settings
from webgym_cli.prepare.sft.sampling import LOT
from webgym_cli.records.trajectory import Step
from webgym_cli.util.optional import when


class DropReason(StrEnum):
    """Why a trajectory or step is dropped."""

    AMBIGUOUS_ID = "ambiguous_id"
    """Another stored trajectory has the same id, for example after files of two runs were merged."""
    FAILURE = "failure"
    """Infrastructure failure: the trajectory is no evidence about the policy."""
    EMPTY = "empty"
    """It has no steps."""
    TOO_FEW_STEPS = "too_few_steps"
    """It has fewer steps than `min_trajectory_steps`."""
    REWARD_UNKNOWN = "reward_unknown"
    """It was not judged."""
    UNSUCCESSFUL = "unsuccessful"
    """The task was not solved."""
    OTHER_SITE = "other_site"
    """It is not on one of `only_sites`, or on one of `exclude_sites`."""
    OTHER_BAND = "other_band"
    """It is not in one of `difficulties`."""
    TOO_OLD = "too_old"
    """It started more than `max_age_hours` before the newest."""
    JUDGE_DIVIDED = "judge_divided"
    """The agreement of the judge's votes is below `min_agreement`."""
    NO_ACTION = "no_action"
    """The response contains no valid action."""
    SAME_SCREENSHOT = "same_screenshot"
    """The screenshot did not change."""
    UNSTABLE_PAGE = "unstable_page"
    """Its page was still loading or moving, or had an HTTP status of an error."""
    OLDER_REPEAT = "older_repeat"
    """A newer iteration has a step of the same task with the same screenshot and response."""
    TRAJECTORY_CAP = "trajectory_cap"
    """It exceeds `max_steps_per_trajectory`."""
    TASK_CAP = "task_cap"
    """It exceeds `max_steps_per_task`."""
    DAMAGED = "damaged"
    """Its line or its judgement's was damaged after indexing."""
    RESPONSE_HAS_PLACEHOLDER = "response_has_placeholder"
    """The response contains a media placeholder or control token, which training would interpret."""
    RESPONSE_TOO_SHORT = "response_too_short"
    """The response is shorter than `min_token_length`."""
    RETOKENIZED = "retokenized"
    """The response's text has other token ids than those that were sampled."""
    IMAGE_SIZE = "image_size"
    """A screenshot is outside `image_min_pixels` to `image_max_pixels`."""
    IMAGE_MISSING = "image_missing"
    """A screenshot is missing, altered or can't be decoded."""
    TOO_LONG = "too_long"
    """It exceeds `cutoff_len` even without earlier rounds."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter."""

    drop: DropReason
    predicate: str
    """An SQL condition that holds for what is dropped; null counts as false."""
    parameters: tuple[Any, ...] = ()
    """Values of its `?` placeholders in order."""


@dataclass(frozen=True, slots=True)
class FilterPipeline:
    """The enabled filters in order."""

    trajectories: tuple[Filter, ...]
    """Filters of rows of the view `trajectories`."""
    steps: tuple[Filter, ...]
    """Filters of rows of `steps`."""
    together: tuple[Filter, ...]
    """Filters of all remaining steps together, with window functions.

    `priority` is derived from the seed, `shown` identifies task, screenshot and response.
    """


def build_filters(settings: Settings) -> FilterPipeline:
    """Return the filters enabled by the settings."""
    filters = settings.filters
    return FilterPipeline(
        trajectories=(*_validity_filters(settings.algorithm_config), *_user_filters(filters)),
        steps=tuple(_step_filters(settings)),
        together=tuple(_cap_filters(filters)),
    )


def list_content_reasons(settings: Settings) -> tuple[DropReason, ...]:
    """Return the reasons that are checked when a step is sampled, in order."""
    retokenized = when(settings.algorithm_config.filter_retokenized, [DropReason.RETOKENIZED])
    response = (DropReason.RESPONSE_HAS_PLACEHOLDER, DropReason.RESPONSE_TOO_SHORT, *retokenized)
    return (DropReason.DAMAGED, *response, DropReason.IMAGE_SIZE, DropReason.IMAGE_MISSING, DropReason.TOO_LONG)


def build_reason_sql(filters: Sequence[Filter]) -> tuple[str, list[Any]]:
    """Return the SQL expression of the first matching filter, with the values of its `?`; null for none."""
    cases = " ".join(f"WHEN {item.predicate} THEN '{item.drop}'" for item in filters)
    return f"CASE {cases} END", list_parameters(filters)


def list_parameters(filters: Sequence[Filter]) -> list[Any]:
    """Return the values of the filters' `?`, in order."""
    return list(chain.from_iterable(item.parameters for item in filters))


def find_step_drop(step: Step, settings: Settings) -> DropReason | None:
    """Return why the filters over `steps` would drop this step, or None."""
    if step.action is None:
        return DropReason.NO_ACTION
    if settings.algorithm_config.filter_same_screenshot and step.page_changed is False:
        return DropReason.SAME_SCREENSHOT
    state = step.observation.state
    if settings.filters.stable_pages and state and not state.is_stable:
        return DropReason.UNSTABLE_PAGE
    return None


def _validity_filters(settings: AlgorithmSettings) -> Iterator[Filter]:
    twice = "SELECT id FROM stored WHERE split = 'train' GROUP BY id HAVING count(*) > 1"
    yield Filter(DropReason.AMBIGUOUS_ID, f"id IN ({twice})")
    yield Filter(DropReason.FAILURE, "failure IS NOT NULL")
    yield Filter(DropReason.EMPTY, "steps = 0")
    yield Filter(DropReason.TOO_FEW_STEPS, "steps < ?", (settings.min_trajectory_steps,))
    yield Filter(DropReason.REWARD_UNKNOWN, "success IS NULL")
    if settings.filter_successful_only:
        yield Filter(DropReason.UNSUCCESSFUL, "NOT success")


def _user_filters(settings: FilterSettings) -> Iterator[Filter]:
    if settings.only_sites:
        yield Filter(DropReason.OTHER_SITE, "NOT list_contains(?, site)", (list(settings.only_sites),))
    if settings.exclude_sites:
        yield Filter(DropReason.OTHER_SITE, "list_contains(?, site)", (list(settings.exclude_sites),))
    if settings.difficulties:
        yield Filter(
            DropReason.OTHER_BAND, "NOT list_contains(?, band)", ([band.value for band in settings.difficulties],)
        )
    if settings.max_age_hours is not None:
        newest = "(SELECT max(epoch_ms(started_at)) FROM stored WHERE split = 'train')"
        oldest = f"{newest} - ? * 3600000"
        yield Filter(DropReason.TOO_OLD, f"epoch_ms(started_at) < {oldest}", (settings.max_age_hours,))
    if settings.min_agreement > 0:
        yield Filter(DropReason.JUDGE_DIVIDED, "NOT scored_by_environment AND agreement < ?", (settings.min_agreement,))


def _step_filters(settings: Settings) -> Iterator[Filter]:
    yield Filter(DropReason.NO_ACTION, "action IS NULL")
    if settings.algorithm_config.filter_same_screenshot:
        yield Filter(DropReason.SAME_SCREENSHOT, "NOT page_changed")
    if settings.filters.stable_pages:
        yield Filter(DropReason.UNSTABLE_PAGE, "loading <> 'settled' OR status >= 400")


def _cap_filters(settings: FilterSettings) -> Iterator[Filter]:
    if settings.drop_older_repeats:
        alike = "PARTITION BY reason IS NULL, shown"
        yield Filter(DropReason.OLDER_REPEAT, f"iteration < max(iteration) OVER ({alike})")
    caps = {
        "number": (DropReason.TRAJECTORY_CAP, settings.max_steps_per_trajectory),
        "task": (DropReason.TASK_CAP, settings.max_steps_per_task),
    }
    for column, (drop, most) in caps.items():
        if most is not None:
            order = f"PARTITION BY reason IS NULL, {column} ORDER BY {LOT}, priority"
            yield Filter(drop, f"row_number() OVER ({order}) > ?", (most,))
