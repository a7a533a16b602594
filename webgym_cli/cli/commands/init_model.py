"""`webgym init-model`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from webgym_cli.cli.options import StageOptions
from webgym_cli.cli.output import Output


def init_model(
    kind: Annotated[Literal["tiny"], typer.Argument(metavar="tiny", help="The kind of model.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the model.")],
    options: StageOptions,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 0,
    hidden: Annotated[int, typer.Option(min=32, help="Hidden size of the language model.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Number of layers of the language model.")] = 3,
    heads: Annotated[int, typer.Option(min=1, help="Number of attention heads, of dimension 32 each.")] = 4,
    prompt_version: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="context_config.prompt_version of its runs: the system prompt is a single token."
        ),
    ] = "vanilla",
) -> None:
    """Make a small Qwen3-VL with random weights, offline.

    The model learns simple tasks in minutes. It has its own tokenizer, chat template and processor, trains in
    LLaMA-Factory and is served by vLLM like a real one. It requires the train environment (webgym setup --role train).

    Examples:
      webgym init-model tiny models/tiny
      webgym init-model tiny models/wide --hidden 256 --heads 8
      webgym init-model tiny models/pages --prompt-version webrl

    Exit codes: 4.

    See also: webgym setup, webgym loop.
    """
    from webgym_cli.store.outputs import refuse_output_in_run
    from webgym_cli.testing.tiny_model import TinyModel, build_tiny_model, plan_tiny_model

    refuse_output_in_run(directory)
    sizes = TinyModel(seed=seed, hidden=hidden, layers=layers, heads=heads, prompt_version=prompt_version)
    settings, output = options.load(), Output(as_json=options.json)
    if options.dry_run:
        output.show(plan_tiny_model(directory, sizes))
        return
    model = build_tiny_model(directory, settings, sizes)
    output.show({"kind": kind, "model": str(model)})
    output.next_step(f"webgym loop RUN -s policy_config.base_model={directory}")
