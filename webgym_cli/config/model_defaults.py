"""Settles what the settings leave to the base model's family: template, thinking, reasoning parser."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.config.model_families import DetectedModel, detect_model
from webgym_cli.errors import SettingsError

AUTO, NONE = "auto", "none"
"""What a setting says that follows the model, and one that wants nothing."""
MODEL_DEPENDENT = ("policy_config.template", "policy_config.thinking", "serve.reasoning_parser")
"""The settings that may follow the model."""


def resolve_model_defaults(settings: Settings) -> Settings:
    """Return the settings with everything filled in that follows from the base model.

    What they say themselves stays. Raises `SettingsError` where that contradicts the model. The template of a model of
    no known family stays `auto`: only a training needs it, and refuses then.
    """
    policy, serve = settings.policy_config, settings.serve
    known = detect_model(policy.base_model)
    template, parser = policy.template, serve.reasoning_parser
    thinking = _thinks(known, template) if policy.thinking is None else policy.thinking
    if known is not None:
        _refuse_contradictions(policy.base_model, template, known, thinking=thinking)
        template = known.family.template_for(thinking=thinking) if template == AUTO else template
    if parser == AUTO:
        parser = (known.family.reasoning_parser if known and thinking else "") or NONE
    chosen = policy.model_copy(update={"template": template, "thinking": thinking})
    served = serve.model_copy(update={"reasoning_parser": parser})
    return settings.model_copy(update={"policy_config": chosen, "serve": served})


def require_template(settings: Settings) -> str:
    """Return LLaMA-Factory's template. Raises `SettingsError` where nothing tells it."""
    template = settings.policy_config.template
    if template == AUTO:
        raise SettingsError(
            f"policy_config.template: the family of {settings.policy_config.base_model} is not known",
            hint="name LLaMA-Factory's template for it with -s policy_config.template=NAME",
        )
    return template


def _thinks(known: DetectedModel | None, template: str) -> bool:
    """Return whether the model thinks first: what it tells itself, else what the template is for."""
    if known is None or known.thinks is not None:
        return bool(known and known.thinks)
    return template == known.family.thinking_template


def _refuse_contradictions(model: str, template: str, known: DetectedModel, *, thinking: bool) -> None:
    if known.thinks and not thinking:
        raise SettingsError(
            f"policy_config.thinking: {model} thinks before it acts; read otherwise, its thoughts would count as deeds",
            hint="-s policy_config.thinking=true, or take the model of this family that answers at once",
        )
    right, wrong = (known.family.template_for(thinking=kind) for kind in (thinking, not thinking))
    if template == wrong != right:
        does = "thinks before it acts" if thinking else "answers at once"
        raise SettingsError(
            f"policy_config.template: {template} is not for {model}, which {does}: training would change that",
            hint=f"-s policy_config.template={AUTO} takes {right}",
        )
