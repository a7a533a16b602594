"""Assignment of GPUs to servers, by CUDA's names."""

from __future__ import annotations

from collections.abc import Mapping

from webgym_cli.errors import SettingsError
from webgym_cli.jobs import devices


def usable_gpus(environ: Mapping[str, str], chosen: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the usable GPUs: the chosen ones, else those of `CUDA_VISIBLE_DEVICES`, else all of this machine.

    Empty if no GPU is known. Raises `UsageError` for an invalid `CUDA_VISIBLE_DEVICES`, and `SettingsError` for
    chosen GPUs (`serve.gpus`) that are invalid or hidden.
    """
    named = devices.list_visible({**environ, **devices.restrict(environ, chosen, "serve.gpus")})
    return tuple(str(number) for number in range(devices.present())) if named is None else named


def split_gpus(
    gpus: tuple[str, ...], replicas: int | None, each: int, *, chosen: bool = False
) -> list[tuple[str, ...]]:
    """Return the GPUs of each replica, `each` per replica; empty for a single replica, whose GPUs CUDA chooses.

    `replicas`: None means as many as fit on the GPUs. `chosen`: the user chose the GPUs, so that a single replica
    gets their names too. Raises `SettingsError` if there are too few GPUs.
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
