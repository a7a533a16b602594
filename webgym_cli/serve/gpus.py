"""Assignment of GPUs to servers, by CUDA's names."""

from __future__ import annotations

from collections.abc import Mapping

from webgym_cli.errors import SettingsError
from webgym_cli.jobs import devices


def usable_gpus(environ: Mapping[str, str], chosen: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the GPUs that we may use: the chosen ones, else those that are named to us, else all of this machine.

    Empty where none is known. Raises `UsageError` for a `CUDA_VISIBLE_DEVICES` that names none, and `SettingsError`
    for chosen ones (`serve.gpus`) that are none or hidden.
    """
    named = devices.list_visible({**environ, **devices.restrict(environ, chosen, "serve.gpus")})
    return tuple(str(number) for number in range(devices.present())) if named is None else named


def split_gpus(
    gpus: tuple[str, ...], replicas: int | None, each: int, *, chosen: bool = False
) -> list[tuple[str, ...]]:
    """Return the GPUs of each replica, `each` of them; of a single one no names: the choice is CUDA's.

    `replicas`: None takes as many as the GPUs carry. `chosen`: the names are a person's choice, and passed on to a
    single one too. Raises `SettingsError` when there are too few GPUs.
    """
    count = replicas or max(1, len(gpus) // each)
    if count == 1 and not chosen:
        return [()]
    if len(gpus) < count * each:
        raise SettingsError(
            f"serve.replicas: {count} servers on {each} GPUs each need {count * each}, {len(gpus)} can be used",
            hint="take fewer with -s serve.replicas=N; null takes as many as fit",
        )
    return [gpus[first : first + each] for first in range(0, count * each, each)]
