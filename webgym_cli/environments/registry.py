"""Environment registry, and the checks that a rollout makes before its first episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from webgym_cli.agent.actions.action_sets import ACTION_SETS, ObservationKind
from webgym_cli.config.agent import AgentSettings
from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.records.task import Split, Task
from webgym_cli.records.trajectory import PromptVersion
from webgym_cli.scoring.check import require_checks, require_shaping
from webgym_cli.tasks.encryption import is_encrypted
from webgym_cli.tasks.files import IMAGES, UPLOADS, require_files
from webgym_cli.tasks.format import MAX_STEPS
from webgym_cli.tasks.registry import ENVIRONMENTS, TaskSource, find_source
from webgym_cli.util.optional import group_by
from webgym_cli.util.registry import lazy

__all__ = ["ENVIRONMENTS", "EnvironmentSpec", "find_environment"]

# Action sets that messages suggest.
_USUAL: Mapping[ObservationKind, PromptVersion] = {"picture": PromptVersion.COMPLETE, "text": PromptVersion.WEBRL}


def limit_by_band(settings: Settings, task: Task, split: Split) -> int:
    """Return the task's own step limit, or that of its band (`rollout.train_max_steps`, `rollout.test_max_steps`)."""
    if isinstance(own := task.extra.get(MAX_STEPS), int):
        return own
    limits = settings.rollout.test_max_steps if split is Split.TEST else settings.rollout.train_max_steps
    steps: int = getattr(limits, task.band.value)
    return steps


# Functions on the sites of tasks, imported on their first call.
_SITES = "webgym_cli.environments.sites"
_exclusive_sites = lazy(f"{_SITES}.site_scheduler:exclusive_sites")
_map_isolation = lazy(f"{_SITES}.site_scheduler:map_isolation")
_log_in_to_sites = lazy(f"{_SITES}.site_scheduler:log_in_to_sites")
_list_refused = lazy(f"{_SITES}.doctor:list_refused")
_list_silent = lazy(f"{_SITES}.doctor:list_silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec(TaskSource):
    """Interface of an environment to the rest of webgym. Register one with `ENVIRONMENTS.register(name, spec)`.

    A module with a spec is imported with the settings: what is heavy is imported within the functions.
    """

    make_pool: Callable[[Settings], EnvironmentPool]
    """Returns a pool that is not yet started."""
    observations: Sequence[ObservationKind] = ()
    """How it can show its pages; the action sets that show them otherwise are refused. Empty: it has no pages, and
    takes any."""
    leaves_dialogs: bool = False
    """Whether it can leave the answers of dialogs to the policy (`browser.dialogs`)."""
    check_settings: Callable[[Settings, Sequence[Task]], None] | None = None
    """Raises `WebGymError` for what tasks lack in the settings, such as a tool or an address."""
    require_expert: Callable[[Settings, Sequence[Task]], None] | None = None
    """Raises `UsageError` for a task that its expert can't solve. None: there is no expert."""
    is_judged: Callable[[Settings], bool] = lambda settings: False
    """Whether a judge gives the reward; else the environment's score is the reward."""
    has_reward_function: bool = False
    """Whether `agent.reward_name` scores its episodes; else the setting is refused."""
    scores_unfinished: bool = False
    """Whether an episode that is out of steps keeps an unknown reward without a score, for a reward model. Else it
    has a reward of 0."""
    max_steps: Callable[[Settings, Task, Split], int] = limit_by_band
    """Returns the step limit of an episode."""
    has_sites: bool = False
    """Whether its episodes may be on sites of the settings, with their logins, resets and isolation."""
    new_task_fields: Callable[[Task], dict[str, Any]] | None = None
    """Returns `extra` of a generated task that starts like this one. None: no tasks can be generated."""
    group_name: Callable[[Task], str] = lambda task: ""
    """Returns the name by which task generation groups tasks. Default, and where it is empty: the address's host."""


def find_environment(name: str) -> EnvironmentSpec:
    """Return an environment by its name. Raises `UsageError`."""
    source = find_source(name)
    if not isinstance(source, EnvironmentSpec):
        raise UsageError(f"the environment {name} is no EnvironmentSpec", hint=ENVIRONMENTS.usage)
    return source


def check_tasks(settings: Settings, tasks: Iterable[Task], split: Split | None = None) -> None:
    """Raise `WebGymError` for tasks whose environment does not support the settings, or lacks a setting.

    `split`: that of the tasks; None: any.
    """
    tasks, version = list(tasks), settings.context_config.prompt_version
    require_checks(tasks)
    if name := settings.rl.data.shaping:
        require_shaping(name, tasks)
    if settings.rollout.agent and any(map(is_encrypted, tasks)):
        reason = "its messages, which are stored, would have encrypted tasks in plain text"
        raise SettingsError(f"rollout.agent: {reason}", hint="-s rollout.agent=")
    for spec, own in group_by_environment(tasks):
        action_set, mode = ACTION_SETS.find(str(version)), settings.context_config.interaction_mode
        if spec.observations and action_set.observes not in spec.observations:
            raise SettingsError(
                f"task {own[0].id}: the environment {spec.name} has no prompt version {version}: it shows its pages as "
                f"{spec.observations[0]}, not as {action_set.observes}",
                hint=f"-s context_config.prompt_version={_USUAL[spec.observations[0]]}",
            )
        if spec.observations and mode not in (modes := action_set.modes):
            raise SettingsError(
                f"context_config.prompt_version={version} has no actions in the interaction mode {mode}",
                hint=f"-s context_config.interaction_mode={modes[0]}",
            )
        if spec.observations and settings.context_config.more_actions and action_set.with_more is None:
            raise SettingsError(
                f"context_config.more_actions: the prompt version {version} has no further actions",
                hint="-s context_config.more_actions=false",
            )
        if settings.context_config.observation == "tree" and action_set.observes == "text":
            raise SettingsError(
                f"context_config.observation=tree: the prompt version {version} shows pages as text of its own",
                hint="-s context_config.observation=picture",
            )
        if settings.browser.dialogs == "policy":
            _require_answers(spec, str(version))
        _require_reward_function(spec, settings)
        require_files(settings, own, UPLOADS if spec.observations else IMAGES, split)
        if spec.check_settings is not None:
            spec.check_settings(settings, own)


def count_unscored(settings: Settings, tasks: Iterable[Task]) -> int:
    """Return the number of tasks that nothing scores: they have no check, and there is no judge to ask."""
    if settings.judge.base_url:
        return 0
    judged = (own for spec, own in group_by_environment(tasks) if spec.is_judged(settings))
    return sum(not task.check for task in chain.from_iterable(judged))


def _require_reward_function(spec: EnvironmentSpec, settings: Settings) -> None:
    """Raise `SettingsError` if a reward function is set that the environment would never call."""
    name = settings.agent.reward_name
    if not spec.has_reward_function and name != AgentSettings().reward_name:
        raise SettingsError(
            f"agent.reward_name={name}: the environment {spec.name} has no reward function",
            hint="-s agent.reward_name=math_equal_reward (the default); score its tasks with a check or a judge, and "
            "shape rewards with rl.data.shaping (docs/checks.md)",
        )


def _require_answers(spec: EnvironmentSpec, version: str) -> None:
    """Raise `SettingsError` if dialogs are left to a policy whose action set can't answer them."""
    if not spec.leaves_dialogs:
        detail = f"the environment {spec.name} accepts dialogs itself"
        raise SettingsError(f"browser.dialogs=policy: {detail}", hint="-s browser.dialogs=accept")
    if ACTION_SETS.find(version).with_dialogs is None:
        detail = f"the prompt version {version} has no action that answers a dialog"
        raise SettingsError(f"browser.dialogs=policy: {detail}", hint="-s context_config.prompt_version=full")


def require_experts(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for a task that no expert solves."""
    for spec, own in group_by_environment(tasks):
        if spec.require_expert is None:
            raise UsageError(
                f"task {own[0].id}: there is no expert for the environment {spec.name}",
                hint="--policy vllm, or tasks of miniwob:, sites:, webarena: or arithmetic:",
            )
        spec.require_expert(settings, own)


def claim_sites(settings: Settings, task: Task) -> frozenset[str]:
    """Return the sites that no other episode may use while one of this task runs."""
    return _exclusive_sites(settings, task) if find_environment(task.environment).has_sites else frozenset()


def map_isolation(settings: Settings, tasks: Iterable[Task]) -> dict[str, str]:
    """Return each site of tasks and how it keeps episodes apart."""
    return _map_isolation(settings, own) if (own := _select_on_sites(tasks)) else {}


def describe_isolation(isolation: Mapping[str, str]) -> str:
    """Return a one-line description of the isolation."""
    words = {
        "parallel": "any number of episodes",
        "serial": "one at a time",
        "reset": "one at a time, after a reset",
        "tenant": "any number of episodes, each in its own tenant",
    }
    return "sites: " + "; ".join(f"{site} {words[kind]}" for site, kind in isolation.items())


def list_refused(settings: Settings, tasks: Iterable[Task]) -> list[str]:
    """Return notes on tasks whose episodes the settings would refuse."""
    return _list_refused(settings, own) if (own := _select_on_sites(tasks)) else []


async def list_silent(settings: Settings, tasks: Iterable[Task]) -> list[str]:
    """Return notes on sites of tasks that do not answer now."""
    return await _list_silent(settings, own) if (own := _select_on_sites(tasks)) else []


async def log_in_to_sites(settings: Settings, tasks: Iterable[Task]) -> Sequence[str]:
    """Ensure that the logins of tasks are valid; return those that were renewed. Raises `WebGymError`."""
    return await _log_in_to_sites(settings, own) if (own := _select_on_sites(tasks)) else ()


def _select_on_sites(tasks: Iterable[Task]) -> list[Task]:
    return [*chain.from_iterable(own for spec, own in group_by_environment(tasks) if spec.has_sites)]


def group_by_environment(tasks: Iterable[Task]) -> list[tuple[EnvironmentSpec, list[Task]]]:
    """Return each environment with its tasks. Raises `UsageError`."""
    groups = group_by(tasks, attrgetter("environment"))
    return [(find_environment(name), own) for name, own in groups.items()]
