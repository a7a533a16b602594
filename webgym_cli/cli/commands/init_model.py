"""`webgym init-model`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli.options import ConfigOpt, DryRunOpt, JsonOpt, SetOpt
from webgym_cli.cli.output import Output


class ModelKind(StrEnum):
    """The models that can be made."""

    TINY = "tiny"


def init_model(
    kind: Annotated[ModelKind, typer.Argument(metavar="tiny", help="The kind of model.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the model.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 0,
    hidden: Annotated[int, typer.Option(min=32, help="Width of the language model.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the language model.")] = 3,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of the language model, 32 wide each.")] = 4,
    pages: Annotated[
        bool,
        typer.Option("--pages", help="A tokenizer for the pages of -c demo-webrl."),
    ] = False,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
    dry_run: DryRunOpt = False,
) -> None:
    """Make a small Qwen3-VL with random weights, offline.

    It knows nothing, and learns small things in minutes. It has its own tokenizer, chat template and processor, trains
    in LLaMA-Factory and serves in vLLM as a real one does. Needs the train role (webgym setup --role train).

    Examples:
      webgym init-model tiny models/tiny
      webgym init-model tiny models/wide --hidden 256 --heads 8
      webgym init-model tiny models/pages --pages

    Exit codes: 4.

    See also: webgym setup, webgym loop.
    """
    from webgym_cli.config.load import load
    from webgym_cli.testing.tiny_model import TinyModel, build_tiny_model, plan_tiny_model

    sizes = TinyModel(seed=seed, hidden=hidden, layers=layers, heads=heads, pages=pages)
    settings, output = load(config or (), set_ or ()), Output(as_json=json)
    if dry_run:
        output.show(plan_tiny_model(directory, sizes))
        return
    model = build_tiny_model(directory, settings, sizes)
    output.show({"kind": kind.value, "model": str(model)})
    output.next_step(f"webgym loop RUN -s policy_config.base_model={directory}")
