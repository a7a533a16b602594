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
    compare("x+1", "1+x")  # imports sympy, which takes longer than a comparison may
    write("ready")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        is_equal = compare(*json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        write(json.dumps(is_equal))


def compare(given: str, wanted: str) -> bool:
    """Whether two expressions in LaTeX are equal; False if one can't be parsed."""
    from math_verify import LatexExtractionConfig, parse, verify

    # LaTeX only: math-verify passes plain expressions to sympy's parse_expr, which evaluates them as Python.
    only_latex = [LatexExtractionConfig()]
    ours, theirs = (parse(f"${text}$", extraction_config=only_latex, parsing_timeout=None) for text in (given, wanted))
    return bool(ours and theirs) and bool(verify(theirs, ours, timeout_seconds=None))


def write(line: str) -> None:
    """Write one line to stdout at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
