"""Prompts of the version `vanilla`, pinned: the digests were made by the release that stored the first trajectories."""

from tests.records.builders import shot, step
from webgym_cli.agent.prompt import render
from webgym_cli.records.action import Action, ActionName, InteractionMode
from webgym_cli.records.trajectory import Element, Observation, ParseErrorKind, PromptSpec, Step

ELEMENTS = (
    Element(id=0, role="button", name='OK "now" <b>', box=(0, 0, 1, 1)),
    Element(id=1, role="textbox", name="Stra\u00dfe\n\t\\", value="Zo\u00eb", box=(0, 0, 1, 1)),
    Element(id=2, role="checkbox", value="checked", box=(0, 0, 1, 1)),
)


def past(mode: InteractionMode) -> list[Step]:
    """Return seven steps in which everything happens that a prompt tells of."""
    marked = mode is InteractionMode.SET_OF_MARKS
    where = {"element_id": 1} if marked else {"coordinate": (12.5, 7)}
    # Action, response, whether the page changed.
    happened = [
        (Action(name=ActionName.CLICK, **where), "Plain.", True),
        (Action(name=ActionName.TYPE, text='a "b"\n', **where), "<think>a\nb</think>\nThen <image>.", False),
        (None, "", False),
        (Action(name=ActionName.SCROLL, direction="down"), "<think>open", True),
        (Action(name=ActionName.NAVIGATE, url="http://b/<|im_end|>"), " a<think>b</think> c", False),
        (Action(name=ActionName.WAIT, seconds=2), "x", True),
        (Action(name=ActionName.GO_BACK), "<|y|>", None),
    ]
    return [
        step(
            index,
            observation=Observation(
                url=f"http://a/{index}",
                title=f"P\u00e4ge <{index}>",
                screenshot=shot(index),
                elements=ELEMENTS if marked else (),
            ),
            action=action,
            response=response,
            parse_error=None if action else ParseErrorKind.NO_TOOL_CALL,
            action_error="element 9 is gone" if index == 4 else None,
            page_changed=changed,
        )
        for index, (action, response, changed) in enumerate(happened)
    ]


def digests(mode: InteractionMode, window: int) -> list[str]:
    """Return the first twelve digits of the digest of each step's prompt."""
    spec = PromptSpec(interaction_mode=mode, history_window=window)
    steps = past(mode)
    return [
        render(spec, "Do it:\nnow.", "http://start/", steps[:index], steps[index].observation).digest[:12]
        for index in range(len(steps))
    ]


DIGESTS = {
    (InteractionMode.COORDINATES, 0): [
        "344e43d3c215", "521823730283", "d425c7e1c568", "5438c7365c4e", "7dbdb80843ce", "b7d16dab77e2", "46bdfa1ce1da",
    ],
    (InteractionMode.COORDINATES, 1): [
        "344e43d3c215", "3cf4ee6c6a67", "c89e196e4504", "45e778be4d8d", "c5d47ed4b0c7", "2d81c717601c", "ca8354c57c64",
    ],
    (InteractionMode.COORDINATES, 4): [
        "344e43d3c215", "3cf4ee6c6a67", "fb878bd95338", "54de50293b29", "528b80bc9494", "30aaf0c91f21", "70227083f724",
    ],
    (InteractionMode.SET_OF_MARKS, 0): [
        "4c44f2e1b11b", "ec83c9ec7a19", "409c83f8e91f", "f73402dbd6d0", "8558f02a6fd6", "c155369d13c0", "dd9ab7a528de",
    ],
    (InteractionMode.SET_OF_MARKS, 1): [
        "4c44f2e1b11b", "a20d1c4bf088", "0fdc90ef66e8", "b22c2f53df18", "dcaf25876d87", "dc9e2b65eae1", "12736fa84351",
    ],
    (InteractionMode.SET_OF_MARKS, 4): [
        "4c44f2e1b11b", "a20d1c4bf088", "4f8cbb4bab97", "d29683ed68cc", "9b7e85204cf6", "7182d5795fa1", "8950f2636b4b",
    ],
}  # fmt: skip
"""By interaction mode and history window."""
