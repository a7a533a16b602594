"""Pages of component libraries that no rule for marks was mended by; their controls are listed by hand.

A control is reached if the click point of a mark lies in its box and in no smaller one. In a state with a popup only
the popup's controls are listed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from webgym_cli.environments.browser.observe import list_elements

if TYPE_CHECKING:
    from playwright.async_api import FloatRect

    from webgym_cli.environments.browser.session import BrowserSession

SOURCES = Path(__file__).parent / "libraries_aside"
PACKAGES = ("@patternfly/react-core@6", "@ui5/webcomponents@2", "@douyinfe/semi-ui@2", "webix@11")


@dataclass(frozen=True, slots=True)
class HandState:
    """One state of a page."""

    clicks: tuple[str, ...]
    """Playwright selectors that are clicked one after the other."""
    controls: tuple[str, ...]
    """Selectors of all that a person can click or fill in, each of which may match several."""


_MORE = "[role=tab] >> text=More"
_PF = ".pf-v6-c-"
PAGES = {
    "patternfly": (
        HandState(
            (),
            (
                *("[role=tab]", "#name", f"{_PF}number-input button", "[aria-label=Amount]", "#kind", "#city", "#day"),
                *(f"{_PF}date-picker button", f"{_PF}toggle-group__button", f"{_PF}check", f"{_PF}radio"),
                *(f"{_PF}switch", f"{_PF}slider__main", "#notes", "#send", "#later"),
            ),
        ),
        HandState(("#city",), ("[role=option]",)),
        HandState((f"{_PF}date-picker button",), (f"{_PF}popover button", f"{_PF}popover input")),
        HandState(
            (_MORE,),
            (
                *("[role=tab]", "[aria-label=Find]", f"{_PF}text-input-group button", f"{_PF}label button", "#menu"),
                *(f"{_PF}tree-view__node", f"{_PF}expandable-section button", f"{_PF}pagination button", "#dialog"),
                f"{_PF}pagination input",
            ),
        ),
        HandState((_MORE, "#menu"), ("[role=menuitem]",)),
        HandState((_MORE, "#dialog"), (f"{_PF}modal-box button",)),
    ),
    "ui5": (
        HandState(
            (),
            (
                *("[role=tab]", "#name", "#amount", "#amount .ui5-step-icon", "#city", "#tags", "#tags ui5-token"),
                *("#day", "#day .inputIcon", "#size", "#stars", "#notes", "#agree", "#air", "#sea", "#live", "#send"),
                *("ui5-segmented-button-item", "#help"),
            ),
        ),
        HandState(("#city",), ("ui5-option",)),
        HandState(("#day .inputIcon",), ("[role=gridcell]", ".ui5-calheader-arrowbtn", ".ui5-calheader-middlebtn")),
        HandState(
            (_MORE,),
            (
                *("[role=tab]", "ui5-table ui5-checkbox", "[id^=edit-]", "[id^=drop-]", "[role=treeitem]"),
                *(".ui5-li-tree-toggle-icon", ".ui5-panel-header", "#menu", "#dialog"),
            ),
        ),
        HandState((_MORE, "#menu"), ("[role=menuitem]",)),
        HandState((_MORE, "#dialog"), ("#yes", "#no")),
    ),
    "semi": (
        HandState(
            (),
            (
                *("[role=tab]", "#name", "#amount", ".semi-input-number-button", "#city", "#tags", ".semi-tag-close"),
                *(".day", ".words", ".semi-slider-handle", ".semi-rating-star", ".semi-switch", ".semi-radio"),
                *(".semi-checkbox", "#notes", "#send", "#file"),
            ),
        ),
        HandState(("#city",), (".semi-select-option",)),
        HandState((".day",), (".semi-datepicker-day:not(:empty)", ".semi-datepicker-navigation button")),
        HandState(
            (_MORE,),
            (
                *(
                    "[role=tab]",
                    ".semi-table .semi-checkbox",
                    ".semi-table-column-sorter-wrapper",
                    ".semi-table button",
                ),
                *(".semi-tree-option", ".semi-tree-option-expand-icon:not(.semi-tree-option-empty-icon)"),
                *(".semi-page-item", ".semi-collapse-header", "#menu", "#dialog"),
            ),
        ),
        HandState((_MORE, "#menu"), (".semi-dropdown-item",)),
        HandState((_MORE, "#dialog"), (".semi-modal button",)),
    ),
    "webix": (
        HandState(
            (),
            (
                *("[role=tab]", "[view_id=name] input", "[view_id=amount] button", "[view_id=amount] input"),
                *("[view_id=kind] .webix_inp_static", "[view_id=city] input", "[view_id=city] .webix_input_icon"),
                *(
                    "[view_id=day] .webix_inp_static",
                    "[view_id=size] .webix_slider_box",
                    "[view_id=live] .webix_el_box",
                ),
                *("[view_id=agree] .webix_el_box", "[view_id=by] .webix_radio_option"),
                *("[view_id=notes] textarea", "[view_id=send] button", "[view_id=later] button"),
            ),
        ),
        HandState(("[view_id=kind] .webix_inp_static",), (".webix_popup .webix_list_item",)),
        HandState(
            ("[view_id=day] .webix_inp_static",),
            (
                *(".webix_cal_body [role=gridcell]", ".webix_cal_prev_button", ".webix_cal_next_button"),
                *(".webix_cal_month_name", ".webix_cal_icon"),
            ),
        ),
        HandState(
            (_MORE,),
            (
                *("[role=tab]", "[view_id=bars] button", "[view_id=find] input", "[view_id=menu] .webix_list_item"),
                *(
                    ".webix_table_checkbox",
                    "[view_id=table] .webix_hcell:has-text('Who')",
                    "[view_id=table] .webix_ss_header input",
                ),
                *(
                    "[view_id=table] [aria-colindex='2'].webix_cell",
                    "[view_id=tree] .webix_tree_item",
                    ".webix_tree_open",
                ),
                *("[view_id=list] .webix_list_item", "[view_id=dialog] button"),
            ),
        ),
        HandState((_MORE, "[view_id=menu] >> text=File"), (".webix_popup .webix_list_item",)),
        HandState((_MORE, "[view_id=dialog] button"), (".webix_popup_button",)),
    ),
}


async def count_by_hand(session: BrowserSession, state: HandState) -> tuple[Counter[str], list[str]]:
    """Compare the marks of a page with the listed controls. Returns the counts, and the controls without a mark."""
    page = session.page
    boxes: list[tuple[str, FloatRect]] = []
    for selector in state.controls:
        for number, one in enumerate(await page.locator(selector).all()):
            box = await one.bounding_box()
            if box and await one.is_visible() and _is_in_sight(box, session.options.height):
                boxes.append((f"{selector} {number}", box))
    boxes.sort(key=lambda pair: pair[1]["width"] * pair[1]["height"])
    seen, reached = await list_elements(session), Counter[str]()
    for mark in seen:
        name = next((name for name, box in boxes if _contains(box, mark.point)), None)
        if name:
            reached[name] += 1
    missed = [name for name, _ in boxes if name not in reached]
    twice = sum(count - 1 for count in reached.values())
    unnamed = sum(not mark.element.name for mark in seen)
    counts = Counter(controls=len(boxes), marks=len(seen), missed=len(missed), duplicates=twice, unnamed=unnamed)
    return counts, [*missed, *(f"twice: {name}" for name, count in reached.items() if count > 1)]


def _is_in_sight(box: FloatRect, height: int) -> bool:
    return box["width"] > 0 and box["height"] > 0 and box["y"] >= 0 and box["y"] + box["height"] <= height


def _contains(box: FloatRect, point: tuple[float, float]) -> bool:
    across, down = point[0] - box["x"], point[1] - box["y"]
    return 0 <= across <= box["width"] and 0 <= down <= box["height"]
