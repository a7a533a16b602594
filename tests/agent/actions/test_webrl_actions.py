import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import each
from webgym_cli.agent.actions.parse import ParseError
from webgym_cli.agent.actions.webrl_actions import parse_webrl_action
from webgym_cli.agent.forms.webrl_forms import WAIT_SECONDS, render_webrl_action
from webgym_cli.records.action import Action, ActionName
from webgym_cli.records.trajectory import ParseErrorKind as Kind
from webgym_cli.records.webrl import POINTING, SAYING, WebRLAction, WebRLActionName

CLICK = 'do(action="Click", element="12")'
CLICKED = Action(name=ActionName.CLICK, element_id=12)
SEARCH, SELECT, TAB = WebRLActionName.SEARCH, WebRLActionName.SELECT, WebRLActionName.SWITCH_TAB


def typed(text, element=3):
    return Action(name=ActionName.TYPE, element_id=element, text=text)


def answered(text):
    return Action(name=ActionName.ANSWER, text=text)


ACTIONS = {
    "a click": (CLICK, CLICKED),
    "single quotes": ("do(action='Click', element='12')", CLICKED),
    "a bare number": ('do(action="Click", element=12)', CLICKED),
    "by place": ('do("Click", None, "12")', CLICKED),
    "None for an argument": ('do(action="Click", argument=None, element="12")', CLICKED),
    "lower case": ('do(action="click", element="12")', CLICKED),
    "another order": ('do(element="12", action="Click")', CLICKED),
    "space everywhere": ('do( action = "Click" ,\n  element = "12" , )', CLICKED),
    "notes before": (f"# Element: the 'Save' button (top)\n{CLICK}", CLICKED),
    "notes that name calls": (f'# Note: exit(message="x") comes later, do("\n{CLICK}', CLICKED),
    "a note without its mark": (f'Note: press exit( or do(action="x")\n{CLICK}', CLICKED),
    "an apostrophe in a note": (f"# Note: the user's review (4/5\n\n{CLICK}\n", CLICKED),
    "a comment behind": (f"{CLICK}  # exit(message='no')", CLICKED),
    "notes after": (f"{CLICK}\n# Note: done", CLICKED),
    "a bullet": (f"- {CLICK}", CLICKED),
    "code marks": (f"```python\n{CLICK}\n```", CLICKED),
    "code marks in the line": (f"`{CLICK}`", CLICKED),
    "a thought": (f"<think>\nexit()\n</think>\n{CLICK}", CLICKED),
    "Type": ('do(action="Type", argument="a \\"quoted\\" (text)", element="3")', typed('a "quoted" (text)')),
    "the other quotes": ("do(action='Type', argument='say \"hi\" \\'x\\'', element='3')", typed("say \"hi\" 'x'")),
    "a call in an argument": (
        'do(action="Type", argument="call todo(x), do(y)", element="3")',
        typed("call todo(x), do(y)"),
    ),
    "escapes": (r'do(action="Type", argument="a\tb\\n\nC:\dir \u00e9\x41", element="3")', typed("a\tb\\n\nC:\\dir éA")),
    "a line break": ('do(action="Type", argument="one\ntwo", element="3")', typed("one\ntwo")),
    "three quotes": ('do(action="Type", argument="""a "b" c""", element="3")', typed('a "b" c')),
    "an empty text": ('do(action="Type", argument="", element="3")', typed("")),
    "other scripts": ('do(action="Type", argument="日本語 – naïve", element="3")', typed("日本語 – naïve")),
    "Hover": ('do(action="Hover", element="3")', Action(name=ActionName.HOVER, element_id=3)),
    "Scroll Up": ('do(action="Scroll Up")', Action(name=ActionName.SCROLL, direction="up")),
    "Scroll Down": ('do(action="Scroll Down")', Action(name=ActionName.SCROLL, direction="down")),
    "Go Backward": ('do(action="Go Backward")', Action(name=ActionName.GO_BACK)),
    "go_backward": ("go_backward()", Action(name=ActionName.GO_BACK)),
    "Go Forward": ('do(action="Go Forward")', WebRLAction(name=WebRLActionName.GO_FORWARD)),
    "go_forward": ("go_forward()", WebRLAction(name=WebRLActionName.GO_FORWARD)),
    "Wait": ('do(action="Wait")', Action(name=ActionName.WAIT, seconds=WAIT_SECONDS)),
    "Wait so long": ('do(action="Wait", argument="2.5")', Action(name=ActionName.WAIT, seconds=2.5)),
    "Search": ('do(action="Search", argument="x", element="0")', WebRLAction(name=SEARCH, element_id=0, text="x")),
    "Select": (
        'do(action="Select Dropdown Option", argument="Month", element="20")',
        WebRLAction(name=SELECT, element_id=20, text="Month"),
    ),
    "Press Enter": ('do(action="Press Enter")', WebRLAction(name=WebRLActionName.PRESS_ENTER)),
    "Right Click": (
        'do(action="Right Click", element="4")',
        WebRLAction(name=WebRLActionName.RIGHT_CLICK, element_id=4),
    ),
    "Switch Tab": ('do(action="Switch Tab", argument="1")', WebRLAction(name=TAB, tab=1)),
    "Switch Tab, bare": ('do(action="Switch Tab", argument=0)', WebRLAction(name=TAB, tab=0)),
    "quote": ('quote(content="kept")', WebRLAction(name=WebRLActionName.QUOTE, text="kept")),
    "exit": ('exit(message="It\'s (about) 5, or \\"six\\".")', answered('It\'s (about) 5, or "six".')),
    "exit without a message": ("exit()", answered("")),
    "exit with None": ("exit(message=None)", answered("")),
    "exit by place": ('exit("N/A")', answered("N/A")),
}


@each(("response", "action"), ACTIONS.values())
def test_an_action_is_read(response, action):
    assert parse_webrl_action(response) == action


NOT_ACTIONS = {
    "nothing": ("", Kind.NO_TOOL_CALL),
    "prose": ("I click the button.", Kind.NO_TOOL_CALL),
    "only a note": (f"# {CLICK}", Kind.NO_TOOL_CALL),
    "a call in the middle of a line": (f"I will {CLICK}", Kind.NO_TOOL_CALL),
    "only thought": (f"<think>\n{CLICK}", Kind.NO_TOOL_CALL),
    "an open call": ('do(action="Click", element="12"', Kind.NO_TOOL_CALL),
    "an open quote": ('exit(message="I found', Kind.NO_TOOL_CALL),
    "an open escape": ('exit(message="caf\\u00', Kind.NO_TOOL_CALL),
    "two calls": (f"{CLICK}\n{CLICK}", Kind.SEVERAL_TOOL_CALLS),
    "two calls in a line": (f"{CLICK}; {CLICK}", Kind.SEVERAL_TOOL_CALLS),
    "two calls side by side": (f"{CLICK} exit()", Kind.SEVERAL_TOOL_CALLS),
    "another function": ('click(element="12")', Kind.UNKNOWN_FUNCTION),
    "an unknown action": ('do(action="Explode")', Kind.UNKNOWN_ACTION),
    "quote as an action": ('do(action="quote", argument="x")', Kind.UNKNOWN_ACTION),
    "no action": ('do(element="12")', Kind.UNKNOWN_ACTION),
    "nothing at all": ("do()", Kind.UNKNOWN_ACTION),
    "a number as action": ("do(action=3)", Kind.UNKNOWN_ACTION),
    "no element": ('do(action="Click")', Kind.INVALID_ARGUMENTS),
    "an element that is a text": ('do(action="Click", element="Save")', Kind.INVALID_ARGUMENTS),
    "a negative element": ("do(action='Click', element=-1)", Kind.INVALID_ARGUMENTS),
    "a fraction as element": ("do(action='Click', element=1.0)", Kind.INVALID_ARGUMENTS),
    "an element of other digits": ('do(action="Click", element="٣")', Kind.INVALID_ARGUMENTS),
    "a nested call": ('do(action="Click", element=find("x"))', Kind.INVALID_ARGUMENTS),
    "a bare word": ('do(action="Click", element=twelve)', Kind.INVALID_ARGUMENTS),
    "a truth": ('do(action="Click", element=True)', Kind.INVALID_ARGUMENTS),
    "a list": ('do(action="Click", element=["12"])', Kind.INVALID_ARGUMENTS),
    "a sum": ('exit(message="a" + "b")', Kind.INVALID_ARGUMENTS),
    "two texts": ('exit(message="a" "b")', Kind.INVALID_ARGUMENTS),
    "quotes within quotes": ('exit(message="a "b" c")', Kind.INVALID_ARGUMENTS),
    "curly quotes": ("exit(message=“a”)", Kind.INVALID_ARGUMENTS),
    "a number as text": ('do(action="Type", argument=5, element="3")', Kind.INVALID_ARGUMENTS),
    "a number as message": ("exit(message=5)", Kind.INVALID_ARGUMENTS),
    "no text": ('do(action="Type", element="3")', Kind.INVALID_ARGUMENTS),
    "no option": ('do(action="Select Dropdown Option", element="3")', Kind.INVALID_ARGUMENTS),
    "no tab": ('do(action="Switch Tab")', Kind.INVALID_ARGUMENTS),
    "nothing to keep": ("quote()", Kind.INVALID_ARGUMENTS),
    "an argument too many": ('do(action="Scroll Down", element="3")', Kind.INVALID_ARGUMENTS),
    "a text too many": ('do(action="Click", argument="x", element="3")', Kind.INVALID_ARGUMENTS),
    "an unknown argument": ('do(action="Click", element="3", note="x")', Kind.INVALID_ARGUMENTS),
    "twice the same": ('do(action="Click", element="3", element="4")', Kind.INVALID_ARGUMENTS),
    "twice, once by place": ('do("Click", action="Hover", element="4")', Kind.INVALID_ARGUMENTS),
    "a place after a name": ('do(action="Click", "3")', Kind.INVALID_ARGUMENTS),
    "four places": ('do("Click", None, "3", "4")', Kind.INVALID_ARGUMENTS),
    "an argument for going back": ('go_backward("x")', Kind.INVALID_ARGUMENTS),
    "something behind": (f"{CLICK} to save", Kind.INVALID_ARGUMENTS),
    "something done with it": ('exit(message="a").strip()', Kind.INVALID_ARGUMENTS),
    "two commas": ('do(action="Click",, element="3")', Kind.INVALID_ARGUMENTS),
    "too long a wait": ('do(action="Wait", argument="61")', Kind.INVALID_ARGUMENTS),
    "a wait that is no number": ('do(action="Wait", argument="nan")', Kind.INVALID_ARGUMENTS),
    "half a character": (r'exit(message="\ud800")', Kind.INVALID_ARGUMENTS),
    "no character": (r'exit(message="\UFFFFFFFF")', Kind.INVALID_ARGUMENTS),
    "half a code": (r'exit(message="\u12")', Kind.INVALID_ARGUMENTS),
    "5000 digits": (f"do(action='Click', element={'9' * 5000})", Kind.INVALID_ARGUMENTS),
    "100 000 brackets": (f"exit(message={'(' * 100_000}", Kind.INVALID_ARGUMENTS),
}


@each(("response", "kind"), NOT_ACTIONS.values())
def test_what_is_no_action_says_why(response, kind):
    webrl_action = parse_webrl_action(response)
    assert isinstance(webrl_action, ParseError), webrl_action
    assert webrl_action.kind is kind and webrl_action.detail


LENIENT = {
    "after words on its line": f"I will {CLICK}",
    "before words on its line": f"{CLICK} to save",
    "the last of several": f'do(action="Click", element="3")\nor rather\n{CLICK}',
    "several in a line": f"exit(); {CLICK}",
    "before an open one": f'{CLICK}\ndo(action="Click", element="9',
    "an argument too many": CLICK.replace(")", ', argument="x", note="y")'),
    "not the one of a comment": f'{CLICK}\n# next I do(action="Click", element="3")',
    "nor of one behind it": f'{CLICK}  # not do(action="Click", element="3")',
    "as strictly read": CLICK,
}


@each("response", LENIENT.values())
def test_a_call_may_be_read_leniently(response):
    assert parse_webrl_action(response, lenient=True) == CLICKED


@each(
    ("response", "kind"),
    [
        ("", Kind.NO_TOOL_CALL),
        (f"# {CLICK}", Kind.NO_TOOL_CALL),
        ('redo(action="Click", element="3")', Kind.UNKNOWN_FUNCTION),
        ('I will do(action="Explode")', Kind.UNKNOWN_ACTION),
        ('do(action="Click", element="Save")', Kind.INVALID_ARGUMENTS),
        ('do(action="Click"', Kind.NO_TOOL_CALL),
    ],
)
def test_read_leniently_nothing_is_guessed_either(response, kind):
    assert parse_webrl_action(response, lenient=True).kind is kind


def test_what_met_its_length_limit_says_so_unless_its_call_is_whole():
    for response in ("", "I think", 'do(action="Click", element="1', 'exit(message="a'):
        assert parse_webrl_action(response, truncated=True).kind is Kind.TRUNCATED
    assert parse_webrl_action(f"{CLICK}\n# Note: and now I", truncated=True) == CLICKED
    assert parse_webrl_action(f"exit()\n</think>\n{CLICK}", thinking=True) == CLICKED


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(0, 999_999_999)
OURS = st.one_of(
    st.builds(Action, name=st.sampled_from([ActionName.CLICK, ActionName.HOVER]), element_id=NUMBERS),
    st.builds(Action, name=st.just(ActionName.TYPE), element_id=NUMBERS, text=TEXTS),
    st.builds(Action, name=st.just(ActionName.SCROLL), direction=st.sampled_from(["up", "down"])),
    st.builds(Action, name=st.just(ActionName.WAIT), seconds=st.floats(0, 60)),
    st.builds(Action, name=st.just(ActionName.GO_BACK)),
    st.builds(Action, name=st.just(ActionName.ANSWER), text=TEXTS),
)


@st.composite
def theirs(draw):
    name = draw(st.sampled_from(WebRLActionName))
    return WebRLAction(
        name=name,
        element_id=draw(NUMBERS) if name in POINTING else None,
        text=draw(TEXTS) if name in SAYING else None,
        tab=draw(NUMBERS) if name is TAB else None,
    )


@given(OURS | theirs(), st.lists(TEXTS, max_size=3))
def test_what_is_rendered_is_read_back_whatever_the_notes_say(action, notes):
    comments = "".join(f"# Note: {' '.join(note.splitlines())}\n" for note in notes)
    assert parse_webrl_action(comments + render_webrl_action(action)) == action


@given(st.text())
def test_no_text_makes_the_parser_fail(text):
    for response in (text, f"do({text}", f'exit(message="{text}")'):
        assert isinstance(parse_webrl_action(response), Action | WebRLAction | ParseError)


@pytest.mark.parametrize(
    "action",
    [Action(name=ActionName.CLICK, coordinate=(1, 2)), Action(name=ActionName.NAVIGATE, url="https://example.com")],
)
def test_what_the_language_lacks_is_not_rendered(action):
    with pytest.raises(ValueError, match="WebRL has no such action"):
        render_webrl_action(action)


@pytest.mark.parametrize(
    ("name", "given_", "reason"),
    [
        (SEARCH, {"element_id": 1}, "lacks the argument text"),
        (SEARCH, {"text": "x"}, "lacks the argument element_id"),
        (WebRLActionName.PRESS_ENTER, {"tab": 1}, "has no argument tab"),
    ],
)
def test_an_action_has_exactly_its_arguments(name, given_, reason):
    with pytest.raises(ValueError, match=reason):
        WebRLAction(name=name, **given_)
