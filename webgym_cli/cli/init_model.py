"""`webgym init-model`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from webgym_cli.cli.options import ConfigOpt, JsonOpt, SetOpt
from webgym_cli.cli.output import Output


class Kind(StrEnum):
    """The models that can be made."""

    TINY = "tiny"


def init_model(
    kind: Annotated[Kind, typer.Argument(metavar="tiny", help="The kind of model.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put it.")],
    hidden: Annotated[int, typer.Option(help="Width of the text model, a multiple of 32.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the text model.")] = 3,
    vocabulary: Annotated[int, typer.Option(min=300, help="Tokens that the tokenizer learns.")] = 1500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights.")] = 0,
    config: ConfigOpt = None,
    set_: SetOpt = None,
    json: JsonOpt = False,
) -> None:
    """Make a small randomly initialised model of the Qwen3-VL architecture, without any download.

    It has its own tokenizer, chat template and processor; it trains in LLaMA-Factory and serves in vLLM like a real
    one. Needs the train role (webgym setup --role train).

    Example: webgym init-model tiny models/tiny
    """
    from webgym_cli.config.load import load
    from webgym_cli.testing.tiny_model import build_tiny_model

    settings = load(config or (), set_ or ())
    facts = build_tiny_model(folder, settings, hidden=hidden, layers=layers, vocabulary=vocabulary, seed=seed)
    output = Output(as_json=json)
    output.show(facts)
    output.next_step(f"webgym serve RUN --model {folder}   or   -s policy_config.base_model={folder}")
