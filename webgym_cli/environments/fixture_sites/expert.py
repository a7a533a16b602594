"""Expert for all tasks of the sites, for any seed: it follows the steps of a task's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webgym_cli.environments.fixture_sites.expressions import evaluate, fill
from webgym_cli.environments.sites.site_expert import ActionPlan, ExpertPage, ExpertRun, SiteExpert


def follow_steps(page: ExpertPage, steps: Sequence[Any], values: Mapping[str, Any]) -> ActionPlan:
    """Follow the steps, each of one of these kinds; a list in place of a step is followed too.

    - `click`: the role and the name of an element;
    - `type`: texts by the names of fields; a line feed at the end submits the form;
    - `read`: a pattern, whose groups are names from then on; `rows`: all its places, as a list of that name;
    - `set`: names and expressions;
    - `each` and `do`: steps for each item of a list; the names of each are in `done` afterwards;
    - `switch_tab`: a number;
    - `answer`: the answer.

    All texts are for Jinja, with the names so far, first `values`.
    """
    yield _follow(page, steps, dict(values))


def make_expert_run(steps: Sequence[Any], values: Mapping[str, Any]) -> ExpertRun:
    """Return the expert of one episode. `values`: the values in the instruction, by the names in the steps."""
    return ExpertRun(SiteExpert.of(follow_steps, "fixture sites"), {"steps": steps, "values": values})


def _follow(page: ExpertPage, steps: Sequence[Any], names: dict[str, Any]) -> ActionPlan:
    for step in steps:
        if isinstance(step, list):
            yield _follow(page, step, names)
        elif "each" in step:
            yield _repeat(page, step, names)
        else:
            ((kind, value),) = step.items()
            yield _act(page, kind, value, names)


def _repeat(page: ExpertPage, step: Mapping[str, Any], names: dict[str, Any]) -> ActionPlan:
    listed, done = step["each"], []
    for item in evaluate(listed, names) if isinstance(listed, str) else listed:
        one = names | {name: fill(str(value), names) for name, value in item.items()}
        yield _follow(page, step["do"], one)
        done.append(one)
    names["done"] = done


def _act(page: ExpertPage, kind: str, value: Any, names: dict[str, Any]) -> ActionPlan:
    if kind == "click":
        role, name = fill(value, names).split(" ", 1)
        yield page.click(name, role)
    elif kind == "type":
        for name, text in value.items():
            yield page.type(fill(name, names), fill(text, names))
    elif kind == "read":
        names |= yield page.read(fill(value, names))
    elif kind == "rows":
        names["rows"] = yield page.read_all(fill(value, names))
    elif kind == "set":
        for name, expression in value.items():
            names[name] = evaluate(expression, names)
    elif kind == "switch_tab":
        yield page.switch_tab(value)
    elif kind == "answer":
        yield page.answer(fill(value, names))
    else:
        raise ValueError(f"an expert's step is of no kind: {kind}")
