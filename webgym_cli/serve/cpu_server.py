"""vLLM server for CPUs with forked engine processes; run as a script by the interpreter of the serve venv.

On a CPU vLLM spawns its engine and workers, each of which imports vLLM again: two thirds of the start-up time.
Forked processes inherit the server's imports.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal

# The `vllm` command refuses the CPU build, whose distribution has another name.
MODULE = "vllm.entrypoints.openai.api_server"
# "0" makes vLLM's CPU backend compute in the engine process. The API server stays a separate process.
ONE_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"


def fork_engine_processes() -> None:
    """Make vLLM fork its child processes instead of spawning them."""
    import torch
    from vllm.utils import system_utils

    server = os.getpid()

    def set_up_child() -> None:
        # A signal to the child must not wake the server's event loop, whose descriptor it inherited.
        signal.set_wakeup_fd(-1)
        if os.getppid() != server or os.environ.get(ONE_PROCESS) == "0":
            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    # OpenMP threads don't survive a fork, so a process that forks must have none: only the last process computes.
    torch.set_num_threads(1)
    os.register_at_fork(after_in_child=set_up_child)
    system_utils.get_mp_context = lambda: multiprocessing.get_context("fork")


if __name__ == "__main__":
    fork_engine_processes()
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
