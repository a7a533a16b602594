"""The base of models whose fields are described by the docstrings below them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler


class DocumentedModel(BaseModel):
    """A model whose JSON schema has the docstrings of its fields as descriptions.

    Unlike pydantic's `use_attribute_docstrings` it reads the source when a schema is asked for. Reading that of all
    settings, and building validators that nobody calls, took more than half of the start of every command.
    """

    model_config = ConfigDict(defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """See pydantic."""
        cls.model_rebuild()  # before pydantic 2.14 the default values of a model that is not built have no JSON form
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for owner in cls.__mro__:
            if owner is DocumentedModel:
                break
            for name, text in _read_docstrings(owner).items():
                field = cls.model_fields.get(name)
                for key in (name, field and field.alias):
                    if key in properties:
                        properties[key].setdefault("description", text)
        return schema


def _read_docstrings(model: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class, by field."""
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    except OSError:  # made in a shell
        return {}
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
