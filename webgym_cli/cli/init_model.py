"""`webgym init-model`: builds a tiny model to try everything with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli.options import ConfigOpt, SetOpt


def init_model(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A new folder for the model.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 0,
    hidden: Annotated[int, typer.Option(min=32, help="Width of the language model.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the language model.")] = 4,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of the language model, 32 wide each.")] = 4,
    vision_hidden: Annotated[int, typer.Option(min=32, help="Width of the vision tower; a multiple of 32.")] = 64,
    vision_depth: Annotated[int, typer.Option(min=1, help="Layers of the vision tower.")] = 2,
    vocab_size: Annotated[int, typer.Option(min=512, help="Most tokens of the vocabulary.")] = 1536,
    config: ConfigOpt = None,
    set_: SetOpt = None,
) -> None:
    """Build a tiny Qwen3-VL with random weights, offline: it knows nothing, and learns small things in minutes."""
    from webgym_cli.agent.prompt import system_prompt
    from webgym_cli.cli.output import Output
    from webgym_cli.config.load import load
    from webgym_cli.records.action import InteractionMode
    from webgym_cli.testing.tiny_corpus import corpus
    from webgym_cli.testing.tiny_model import TinyModel, build_tiny_model

    sizes = TinyModel(
        seed=seed,
        hidden=hidden,
        layers=layers,
        heads=heads,
        vision_hidden=vision_hidden,
        vision_depth=vision_depth,
        vocab_size=vocab_size,
    )
    texts = [*corpus(), *(system_prompt(mode) for mode in InteractionMode)]
    output = Output()
    output.text(str(build_tiny_model(directory, load(config or (), set_ or ()), sizes, texts=texts)))
    output.next_step(f"webgym loop RUN -s policy_config.base_model={directory}")
