"""Registration of the environment `web`: rewards from a judge."""

from __future__ import annotations

from collections.abc import Sequence

from webgym_cli.agent.actions.action_sets import ACTION_SETS
from webgym_cli.config.model import Settings
from webgym_cli.environments.registry import EnvironmentSpec
from webgym_cli.environments.web.tasks import complete_address, is_web_record, require_instruction
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.registry import lazy


def _require_expert(settings: Settings, tasks: Sequence[Task]) -> None:
    from webgym_cli.environments.sites.site_expert import require_site_experts

    version = settings.context_config.prompt_version
    if ACTION_SETS.find(str(version)).observes == "text":
        raise UsageError(f"experts do not act in the prompt version {version}", hint="--policy vllm, or another one")
    require_site_experts(tasks)


SPEC = EnvironmentSpec(
    name="web",
    benchmarks=("openended",),
    claims=is_web_record,
    complete=complete_address,
    check_task=require_instruction,
    make_pool=lazy("webgym_cli.environments.web.environment:WebPool"),
    observations=("picture", "text"),
    leaves_dialogs=True,
    is_judged=lambda settings: True,
    require_expert=_require_expert,
    check_settings=lazy("webgym_cli.environments.sites.site_scheduler:require_sites"),
    has_sites=True,
    new_task_fields=lambda task: {},
    group_name=lambda task: "@".join(filter(None, (task.site, task.role))),
)
