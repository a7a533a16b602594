"""Runs in the serve environment: vLLM's own parser and engine arguments on servers' command lines, nothing is started.

python on_paper_serve.py JOB.json        {recipe: arguments of the server}

Prints JSON: what the engine arguments hold of each.
"""

import json
import sys
from pathlib import Path

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

KEPT = ("model", "max_model_len", "max_num_seqs", "gpu_memory_utilization", "tensor_parallel_size", "enable_sleep_mode")


def parsed(arguments):
    values = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
    validate_parsed_serve_args(values)
    engine = AsyncEngineArgs.from_cli_args(values)
    return {name: getattr(engine, name) for name in KEPT} | {"port": values.port, "served": values.served_model_name}


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    sys.stdout.write(f"\nRESULT {json.dumps({name: parsed(arguments) for name, arguments in job.items()})}\n")
