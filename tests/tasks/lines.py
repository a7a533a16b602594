"""Lines of task files in WebGym's shape."""

import json

FACTS = [{"description": "Names the shoe", "difficulty": 1}, {"description": "Names the price", "difficulty": 2}]
GROUPS = [
    {"id": "G1", "description": "The shoe", "facts": ["Names it", "Names its colour"]},
    {"id": 2, "description": "The price", "facts": ["Names it in euros"]},
]


def webgym(number=0, **changes):
    """Return the fields of a line as WebGym's data set has them."""
    return {
        "benchmark_name": "InSTA-v3",
        "task_name": f"Find the cheapest shoe, size {number}.",
        "domain": "Shopping",
        "subdomain": "Fashion",
        "website": f"www.shop{number}.co.uk",
        "definite_answer": None,
        "task_id": f"insta-{number}",
        "difficulty": 2,
        "evaluator_reference": GROUPS,
        "distribution": "iid",
        "attempt_level": 0,
        **changes,
    }


def write(path, *values):
    """Write values, or lines that are texts already, as a file."""
    path.write_text("".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values))
    return path
