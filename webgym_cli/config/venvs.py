"""Settings `venvs`: the virtual environments. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from webgym_cli.config.section import ConfigSection


class VenvsSettings(ConfigSection):
    """The Python environments of vLLM and LLaMA-Factory (`webgym setup`)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Hardware of the environments; `auto`: cuda if an NVIDIA driver responds."""
    serve: str = ""
    """Python interpreter, or virtual environment folder, with vLLM; empty: the one of `webgym setup`."""
    train: str = ""
    """Python interpreter, or virtual environment folder, with LLaMA-Factory; empty: the one of `webgym setup`."""
