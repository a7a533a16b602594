import os
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from webgym_cli.errors import UsageError
from webgym_cli.tools.registry import TOOLS, find_tools
from webgym_cli.util import registry
from webgym_cli.util.registry import import_plugins

SOURCE = '''
from webgym_cli.tools import tool

LOADED = []
LOADED.append(1)

@tool
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()

def plain(text): return text

class Shelf:
    books = shout
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_tools.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def entries(monkeypatch):
    entry_points = []
    monkeypatch.setattr(registry, "_read_entry_points", lambda: EntryPoints(entry_points))
    return lambda name, value: entry_points.append(EntryPoint(name, value, "webgym.tools"))


def test_built_in_tools_are_found_by_name():
    assert [tool.name for tool in find_tools(["answer", "calculator", "python"])] == ["answer", "calculator", "python"]


def test_a_tool_of_a_file_is_loaded_once_and_listed_where_settings_name_it(file):
    first, second = TOOLS.find(f"{file}:shout"), TOOLS.find(f"{file}:Shelf.books")
    assert first is second
    assert first("a") == "A"
    assert [*TOOLS.known(["calculator", f"{file}:shout"])][-1].name == f"{file}:shout"


def test_a_file_imports_what_lies_beside_it(file, monkeypatch):
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (file.parent / "beside_my_tools.py").write_text("from my_tools import shout\n")
    assert TOOLS.find(f"{file.parent}/beside_my_tools.py:shout").name == "shout"


def test_a_tool_of_a_module_in_the_working_directory(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    assert TOOLS.find("my_tools:shout").name == "shout"


def test_a_tool_of_an_installed_package(entries):
    entries("adder", "webgym_cli.tools.builtin:calculator")
    assert TOOLS.find("adder").name == "calculator"
    known = {registered_item.name: registered_item.origin for registered_item in TOOLS.known()}
    assert known["calculator"] == "built in"
    assert "adder" in known


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("calculater", "agent.tools: there is no tool 'calculater'"),
        ("{file}:plain", "is no tool, it is a function"),
        ("{file}:nothing", "can't be loaded: AttributeError"),
        ("{folder}/none.py:x", "there is no file"),
        ("no_such_module_at_all:x", "can't be loaded: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_loaded_is_named(file, named, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        TOOLS.find(named.format(file=file, folder=file.parent))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("from webgym_cli.tools import tool\n@tool\ndef f(x):\n    'Do.'\n", "tool f: the parameter x has no type"),
        ("syntax error here", "SyntaxError"),
    ],
)
def test_a_file_that_fails_is_named_each_time(tmp_path, source, reason):
    path = tmp_path / "broken.py"
    path.write_text(source)
    for _ in range(2):
        with pytest.raises(UsageError, match=reason):
            TOOLS.find(f"{path}:f")


def test_two_tools_of_one_name_are_refused(file):
    with pytest.raises(UsageError, match="two tools are called shout"):
        find_tools([f"{file}:shout", f"{file}:shout"])


def test_two_packages_with_one_name_are_refused(entries):
    entries("adder", "webgym_cli.tools.builtin:calculator")
    entries("adder", "webgym_cli.tools.builtin:answer")
    with pytest.raises(UsageError, match="several packages bring a tool adder"):
        TOOLS.find("adder")


def test_a_package_can_neither_hide_a_built_in_tool_nor_spoil_the_list(entries):
    entries("calculator", "webgym_cli.tools.builtin:answer")
    entries("broken", "no_such_module_at_all:x")
    assert TOOLS.find("calculator").name == "calculator"
    known = {registered_item.name: registered_item for registered_item in TOOLS.known()}
    assert known["calculator"].origin == "built in"
    assert known["broken"].item is None and "ModuleNotFoundError" in known["broken"].problem


ENVIRONMENT = """
from webgym_cli.tools import Tool, tool
from webgym_cli.tools.registry import TOOLS

@tool
def whisper(text: str) -> str:
    "Say it quietly."
    return text.lower()

TOOLS.register("whisper", whisper)
"""


def test_a_plugin_registers_under_a_name(tmp_path):
    path = tmp_path / "my_plugin.py"
    path.write_text(ENVIRONMENT)
    try:
        import_plugins([str(path), str(path)])
        assert TOOLS.find("whisper")("A") == "a"
        assert "whisper" in TOOLS.names()
        origins = {registered_item.name: registered_item.origin for registered_item in TOOLS.known()}
        assert origins["whisper"] == "plugins"
        with pytest.raises(UsageError, match="'calculator'"):
            TOOLS.register("calculator", TOOLS.find("whisper"))
        with pytest.raises(UsageError, match="'whisper'"):
            TOOLS.register("whisper", TOOLS.find("calculator"))
    finally:
        TOOLS.registered.clear()


def test_a_file_edited_within_a_second_is_loaded_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "levels.py"
    values = []
    for text in ("LEVEL = 1", "LEVEL = 2"):  # of one size
        path.write_text(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        module = registry._module_of_file(path)
        values.append(module.LEVEL)
        assert module.__file__ == str(path)
        del sys.modules[module.__name__]
    assert values == [1, 2]


def test_two_files_with_helpers_of_one_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    plugins = [tmp_path / name / "checks.py" for name in ("a", "b", "c", "d")]
    for plugin in plugins:
        plugin.parent.mkdir()
        plugin.write_text("import json, helpers_of_desk\n")
        (plugin.parent / "json.py").write_text("")  # not what the import gives, here or in Python
        (plugin.parent / "helpers_of_desk.py").write_text("")
    for plugin in plugins[2:]:
        (plugin.parent / "helpers_of_desk.py").unlink()
    (plugins[3].parent / "helpers_of_desk.py").symlink_to("../a/helpers_of_desk.py")  # the same file
    try:
        import_plugins([str(plugins[3])])
        import_plugins([str(plugins[0]), str(plugins[0])])
        with pytest.raises(UsageError, match=r"d/helpers_of_desk\.py .*b/helpers_of_desk\.py"):
            import_plugins([str(plugins[1])])
        import_plugins([str(plugins[2])])
    finally:
        sys.modules.pop("helpers_of_desk", None)


@pytest.mark.parametrize("source", ["1/0", "syntax error here", "import no_such_module_at_all"])
def test_a_plugin_that_fails_is_named(tmp_path, source):
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(UsageError, match=r"plugins: .*broken\.py can't be imported"):
        import_plugins([str(path)])
