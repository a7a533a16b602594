"""Compares answers in LaTeX with `math-verify`: one JSON pair per line on stdin, `true` or `false` per line on stdout.

A separate process, because sympy may compute endlessly on a short text.
"""

import json
import logging
import resource
import signal
import sys

# CPU time of one comparison, in seconds. The kernel ends the process then, because no signal handler of Python runs
# during the computation of a single huge power, such as 9^(9^9).
CPU_SECONDS = 2.0
# Address space in bytes.
MEMORY = 2 * 2**30


def main() -> None:
    """Write `ready`, then answer until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    # It imports sympy, which takes longer than a comparison may.
    from webgym_cli.scoring.expressions import compare

    compare("x+1", "1+x")
    write("ready")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        is_equal = compare(*json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        write(json.dumps(is_equal))


def write(line: str) -> None:
    """Write one line to stdout at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
