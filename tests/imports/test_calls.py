from tests.tables import each
from webgym_cli.imports.calls import read_single_call


@each(
    ("text", "name", "positional", "named"),
    [
        ("noop()", "noop", (), {}),
        ("click('a51', button=\"left\", modifiers=[])", "click", ("a51",), {"button": "left", "modifiers": []}),
        ("press('a', ['Control', 'a'],)", "press", ("a", ["Control", "a"]), {}),
        ("fill('7', 'x', True, tries=None)", "fill", ("7", "x", True), {"tries": None}),
        ("scroll(-10, 2.5)  # down", "scroll", (-10, 2.5), {}),
        (
            "\n# Element: the link\n  # it's 3\ndo(action='Click', element='3')\n",
            "do",
            (),
            {"action": "Click", "element": "3"},
        ),
        ('send("""\n# Title\nmore""")\n# done', "send", ("\n# Title\nmore",), {}),
    ],
)
def test_a_call_and_its_literals(text, name, positional, named):
    call = read_single_call(text)
    assert (call.name, call.positional, call.named) == (name, positional, named)


@each(
    "text",
    [
        *("", "click", "click(", "click('a'", "a.click()", "click(b)", "click(f())", "click([['a']])", "click([b])"),
        *(
            "click('a'); click('b')",
            "click('a')\nclick('b')",
            "x = click('a')",
            "click(*a)",
            "click(**a)",
            "click('a' + 'b')",
        ),
        *("click(a=1, a=2)", "click(a=1, 2)", "__import__('os').system('true')", "click(" * 100_000, "[" * 100_000),
    ],
)
def test_anything_else_is_no_call(text):
    assert read_single_call(text) is None


def test_arguments_are_found_by_position_or_name():
    call = read_single_call("fill('a', value='b')")
    result = call.get(0, "bid"), call.get(1, "value"), call.get(None, "value"), call.get(2, "more", 7)
    assert result == ("a", "b", "b", 7)
