"""Derives settings from the base model's family: template, thinking, reasoning parser."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.config.model_families import DetectedModel, detect_model, find_call_format
from webgym_cli.errors import SettingsError

# Values of a setting that is derived from the model, and of one that is disabled.
AUTO, NONE = "auto", "none"
# The settings that can be derived from the model.
MODEL_DEPENDENT = ("policy_config.template", "policy_config.thinking", "serve.reasoning_parser", "agent.call_format")


def resolve_model_defaults(settings: Settings) -> Settings:
    """Return the settings with `auto` values derived from the base model.

    Explicit values are kept. Raises `SettingsError` if they contradict the model. The template of a model of unknown
    family stays `auto`, because only training needs it (`require_template`).
    """
    policy, serve = settings.policy_config, settings.serve
    detected = detect_model(policy.base_model)
    template, parser = policy.template, serve.reasoning_parser
    thinking = _is_thinking(detected, template) if policy.thinking is None else policy.thinking
    if detected is not None:
        _refuse_contradictions(policy.base_model, template, detected, thinking=thinking)
        if template == AUTO:
            template = detected.family.template_for(thinking=thinking)
    # A parser for a model that does not think would cut its answers.
    if parser == AUTO:
        parser = (detected.family.reasoning_parser if detected and thinking else "") or NONE
    if settings.agent.call_format == AUTO:
        settings = settings.with_changes(agent={"call_format": find_call_format(policy.base_model)})
    resolved_policy = {"template": template, "thinking": thinking}
    return settings.with_changes(policy_config=resolved_policy, serve={"reasoning_parser": parser})


def require_template(settings: Settings) -> str:
    """Return LLaMA-Factory's template. Raises `SettingsError` if it is unknown."""
    template = settings.policy_config.template
    if template == AUTO:
        raise SettingsError(
            f"policy_config.template: the family of {settings.policy_config.base_model} is not known",
            hint="name LLaMA-Factory's template for it with -s policy_config.template=NAME",
        )
    return template


def _is_thinking(detected: DetectedModel | None, template: str) -> bool:
    """Return whether the model is a thinking model, by its files or else by the template."""
    if detected is None or detected.is_reasoning is not None:
        return bool(detected and detected.is_reasoning)
    return template == detected.family.thinking_template


def _refuse_contradictions(model: str, template: str, detected: DetectedModel, *, thinking: bool) -> None:
    if detected.is_reasoning and not thinking:
        raise SettingsError(
            f"policy_config.thinking: {model} thinks before it acts: its reasoning would be parsed as actions",
            hint="-s policy_config.thinking=true, or take the model of this family that answers at once",
        )
    right, wrong = (detected.family.template_for(thinking=kind) for kind in (thinking, not thinking))
    # The wrong template trains a thinking model to skip its reasoning, or the reverse.
    if template == wrong != right:
        does = "thinks before it acts" if thinking else "answers at once"
        raise SettingsError(
            f"policy_config.template: {template} is not for {model}, which {does}: training would change that",
            hint=f"-s policy_config.template={AUTO} takes {right}",
        )
