"""Kind of log-probabilities that webgym's server returns: processed or raw."""

from __future__ import annotations

from webgym_cli.config.model import Settings
from webgym_cli.errors import SettingsError
from webgym_cli.records.sampling import Logprobs

# vLLM's argument and webgym's default for it.
FLAG, PROCESSED = "--logprobs-mode", "processed_logprobs"
_KINDS: dict[str, Logprobs] = {PROCESSED: "processed", "raw_logprobs": "raw"}


def logprobs_kind(settings: Settings) -> Logprobs:
    """Return the kind of log-probabilities of webgym's server; `serve.extra_args` overrides the default.

    Raises `SettingsError` for a mode that returns logits instead.
    """
    mode, arguments = PROCESSED, settings.serve.extra_args
    for number, argument in enumerate(arguments):
        name, given, value = argument.partition("=")
        if name.replace("_", "-") == FLAG:
            mode = value if given else "".join(arguments[number + 1 : number + 2])
    if mode not in _KINDS:
        raise SettingsError(
            f"serve.extra_args: {FLAG} {mode} gives no log-probabilities", hint="leave it out, then roll out again"
        )
    return _KINDS[mode]
