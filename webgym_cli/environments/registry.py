"""Which environments there are."""

from __future__ import annotations

from collections.abc import Iterable

from webgym_cli.config.model import Settings
from webgym_cli.environments.base import EnvironmentPool
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.records.task import Task
from webgym_cli.records.trajectory import PromptVersion

ENVIRONMENTS = ("miniwob", "web", "webarena", "sites", "tools")
"""The environments that can be made."""


def require_experts(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for a task that no expert solves."""
    from webgym_cli.environments.miniwob.oracle import require_expert

    questions = []
    for task in tasks:
        if task.environment == "miniwob":
            require_expert((task.start_url or task.id).removesuffix(".html"))
        elif task.environment == "tools":
            questions.append(task)
        elif task.environment == "webarena":
            from webgym_cli.environments.fixture_sites.webarena_world import require_webarena_expert

            require_webarena_expert(task)
        elif task.environment != "sites":
            raise UsageError(
                f"task {task.id}: there is no expert for the environment {task.environment}",
                hint="--policy vllm, or tasks of miniwob:, sites:, webarena: or arithmetic:",
            )
    if questions:
        from webgym_cli.environments.tools.oracle import require_workings
        from webgym_cli.tools.registry import find_tools

        require_workings(questions, find_tools(settings.agent.tools), settings.agent)


def require_reward(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise `UsageError` for tools or a reward that can't be loaded, or a task without what the reward needs."""
    asked = [task for task in tasks if task.environment == "tools"]
    if asked:
        from webgym_cli.scoring.registry import REWARDS, require_fields
        from webgym_cli.tools.registry import find_tools

        find_tools(settings.agent.tools)
        require_fields(REWARDS.find(settings.agent.reward_name), asked)


def require_prompt(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise `SettingsError` for a prompt version in which the tasks' environment can't be shown, and for what else
    tasks of WebArena lack: a judge, a setting, a form of evaluation that is known."""
    arena = []
    for task in tasks:
        if task.environment == "webarena":
            arena.append(task)
        elif task.environment != "tools" and settings.context_config.prompt_version is PromptVersion.WEBRL:
            raise SettingsError(
                f"task {task.id}: the environment {task.environment} has no prompt version webrl",
                hint="-s context_config.prompt_version=complete",
            )
    if arena and settings.context_config.prompt_version is not PromptVersion.WEBRL:
        raise SettingsError(
            f"task {arena[0].id}: the environment webarena shows its pages as text, in the prompt version webrl only",
            hint="-s context_config.prompt_version=webrl",
        )
    if arena:
        from webgym_cli.environments.webarena.requirements import require_evaluations

        require_evaluations(settings, arena)


def make_pool(settings: Settings, environment: str) -> EnvironmentPool:
    """Return a pool, not yet started, that makes environments of this name in the settings' interaction mode."""
    if environment == "miniwob":
        from webgym_cli.environments.miniwob.environment import MiniWobPool

        return MiniWobPool(settings, settings.context_config.interaction_mode)
    if environment == "web":
        from webgym_cli.environments.web.environment import WebPool

        return WebPool(settings, settings.context_config.interaction_mode)
    if environment == "webarena":
        from webgym_cli.environments.webarena.environment import WebArenaPool

        return WebArenaPool(settings)
    if environment == "sites":
        from webgym_cli.environments.fixture_sites.environment import SitesPool

        return SitesPool(settings, settings.context_config.interaction_mode)
    if environment == "tools":
        from webgym_cli.environments.tools.environment import ToolsPool

        return ToolsPool(settings)
    raise UsageError(
        f"there is no environment {environment!r}; there is: {', '.join(ENVIRONMENTS)}",
        hint="correct the tasks' field `environment`",
    )
