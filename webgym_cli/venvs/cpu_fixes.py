"""Import fixes for the CPU flavour of the venvs, and the reasons for them.

The package index has torch as a CPU build, but torchvision, torchaudio and torchcodec as CUDA builds:

- torchvision's compiled half can't be loaded. It copes, except that two of its operators (`nms`, `qnms`) must at least
  be declared, or `import torchvision` ends with `operator torchvision::nms does not exist`. vLLM and transformers need
  its resizing and normalising, which are plain Python; the operators themselves are never called.
- torchaudio's compiled half raises OSError at import instead of counting as absent. LLaMA-Factory imports torchaudio
  whatever the data are. Without that half it works in plain Python.
- torchcodec from 0.16 on raises at import: the requirements of the CPU flavour hold it at 0.15.

The first two are mended by a hook (`cpu_hook.py`) that a `.pth` file starts in every process of the environment:
torchrun's workers and vLLM's engine included. It does something only where torch has no CUDA and the compiled half
really can't be loaded; the CUDA flavour doesn't get it. The hook also makes garbage collections rarer: imports create
many objects and no garbage.
"""

from __future__ import annotations

from pathlib import Path

HOOK = Path(__file__).with_name("cpu_hook.py")
# Name of the hook inside a role environment.
MODULE = "webgym_cpu_hook"
PACKAGES = "lib/python3*/site-packages"


def source(device: str) -> str:
    """Return the part of a venv's digest that covers its fixes: any edit of the hook makes new CPU venvs."""
    return HOOK.read_text(encoding="utf-8") if device == "cpu" else ""


def apply(environment: Path) -> None:
    """Install the hook into an environment. Idempotent. Raises `ValueError` for a folder that is none."""
    (packages,) = environment.glob(PACKAGES)
    (packages / f"{MODULE}.py").write_text(HOOK.read_text(encoding="utf-8"), encoding="utf-8")
    (packages / f"{MODULE}.pth").write_text(f"import {MODULE}\n", encoding="utf-8")
