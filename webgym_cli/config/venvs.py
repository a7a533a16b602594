"""Settings `venvs`: the virtual environments. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from webgym_cli.config.section import ConfigSection


class VenvsSettings(ConfigSection):
    """The Python environments of vLLM and LLaMA-Factory (`webgym setup`)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Flavour of the environments; `auto`: cuda where an NVIDIA driver answers."""
    serve: str = ""
    """A Python interpreter, or the folder of an environment, that has vLLM; empty: the one that `webgym setup` made."""
    train: str = ""
    """The same for LLaMA-Factory."""
