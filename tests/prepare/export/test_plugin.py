"""An export format of a user: registered from a file outside the package, named on the command line."""

import json

import pytest

from tests.cli.runs import filled
from tests.forked import webgym
from webgym_cli.errors import UsageError
from webgym_cli.prepare.export.options import ExportOptions
from webgym_cli.prepare.export.registry import FORMATS, export_format

LINES = '''
import json

from webgym_cli.prepare.export.registry import export_format


@export_format("toy-lines")
def write(examples, output):
    """One line an example: its id, its reply and the names of its images."""
    for example in examples:
        names = [output.image_name(sha256) for sha256 in example.sample.images]
        output.write_line(json.dumps({"id": example.id, "reply": example.sample.messages[-1].content, "images": names}))


@export_format("toy-folder", file_name=None)
def write_folder(examples, output):
    """A folder with a file an example."""
    for number, example in enumerate(examples):
        (output.folder / f"{number}.txt").write_text(example.sample.messages[-1].content)
'''


def export(project, *arguments, **options):
    return webgym("export-sharegpt", "run", "-s", 'plugins=["toy.py"]', *arguments, cwd=project, **options)


def test_the_formats_of_a_plugin_s_file_write_lines_or_a_folder(tmp_path):
    filled(project := tmp_path)
    (tmp_path / "toy.py").write_text(LINES)
    result = export(project, "--format", "toy-lines")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert records and all(set(record) == {"id", "reply", "images"} for record in records)
    plain = webgym("export-sharegpt", "run", "--format", "jsonl", cwd=project).stdout.splitlines()
    assert [record["id"] for record in records] == [json.loads(line)["id"] for line in plain]
    webgym("export-sharegpt", "run", "--format", "toy.py:write", cwd=project)
    assert "makes a folder" in export(project, "--format", "toy-folder", code=2).stderr
    export(project, "--format", "toy-folder", "-o", "made")
    described = json.loads((project / "made" / "export.json").read_text())
    assert described["records"] == len(list((project / "made").glob("*.txt"))) > 0
    result = webgym("export-sharegpt", "run", "--format", "csv", cwd=project, code=2)
    assert "there is no export format 'csv'" in result.stderr
    assert all(name in result.stderr for name in FORMATS.builtin)


def test_every_built_in_format_describes_itself_and_a_misspelt_property_is_refused_by_the_decorator():
    for name in FORMATS.builtin:
        item = FORMATS.find(name)
        assert (item.name, bool(item.description)) == (name, True)
        with pytest.raises(UsageError):
            item.refuse(ExportOptions(name, copy_images="x", embed_images=True))
    with pytest.raises(TypeError, match="export_format"):
        export_format("toy", embed_images=True)
