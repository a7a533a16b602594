"""Compares answers in LaTeX by `math-verify`: a pair a line on stdin, `true` or `false` a line on stdout.

A process of its own, for sympy can compute without end on a short text, and math-verify's deadlines are signals, which
only the main thread of a process gets.
"""

import json
import logging
import resource
import sys

# Deadlines of math-verify itself: long, for they count time that a busy machine takes away.
PARSE_SECONDS, COMPARE_SECONDS = 10, 20
# CPU time of one comparison, after which the system ends the process: a signal can't stop a single huge power.
CPU_SECONDS = 8
# Address space in bytes.
MEMORY = 2 * 2**30


def main() -> None:
    """Say that it is ready, then answer until stdin ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    from math_verify import LatexExtractionConfig, parse, verify

    # Only LaTeX: what math-verify reads as an expression goes through sympy's parse_expr, which evaluates it as Python.
    only_latex = [LatexExtractionConfig()]
    _write("ready")
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        given, wanted = (
            parse(f"${text}$", extraction_config=only_latex, parsing_timeout=PARSE_SECONDS) for text in json.loads(line)
        )
        is_equal = bool(given and wanted) and verify(wanted, given, timeout_seconds=COMPARE_SECONDS)
        _write(json.dumps(bool(is_equal)))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
