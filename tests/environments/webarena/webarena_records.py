"""Records in WebArena's format."""

from webgym_cli.records.webarena import WebArenaSite

ADDRESSES = {
    WebArenaSite.SHOPPING: "http://shop.test:7770/",
    WebArenaSite.SHOPPING_ADMIN: "http://shop.test:7780/admin",
    WebArenaSite.REDDIT: "http://forum.test:9999",
    WebArenaSite.GITLAB: "http://lab.test:8023",
    WebArenaSite.MAP: "http://map.test:3000",
    WebArenaSite.WIKIPEDIA: "http://wiki.test:8888",
}


def evaluation(**changes):
    """Return an evaluation; of a task with a known answer."""
    return {
        "eval_types": ["string_match"],
        "reference_answers": {"must_include": ["Blue hat"], "exact_match": None},
        "reference_url": "",
        "program_html": [],
        "string_note": "",
        "reference_answer_raw_annotation": "It is the blue hat.",
        **changes,
    }


DUMMY = evaluation(reference_answers={"exact_match": "N/A"}, reference_answer_raw_annotation="")


def record(**changes):
    """Return a configuration."""
    return {
        "sites": ["shopping"],
        "task_id": 12,
        "require_login": True,
        "storage_state": "./.auth/shopping_state.json",
        "start_url": "__SHOPPING__",
        "geolocation": None,
        "intent_template": "Which {{thing}} is cheapest?",
        "instantiation_dict": {"thing": "hat", "number": 3, "all": ["a"]},
        "intent": "Which hat is cheapest?",
        "require_reset": False,
        "eval": evaluation(),
        "intent_template_id": 7,
        **changes,
    }
