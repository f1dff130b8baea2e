"""A tool's signature, read once: what the model is told, and how its arguments are checked."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, get_origin, get_type_hints

from docstring_parser import Docstring, ParseError, parse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaWarningKind
from pydantic_core import CoreSchema, ErrorDetails, PydanticUndefined

from changeover_shared._errors import Invalid, ToolError
from changeover_worker._tools.context import ToolContext

_SHOWN_ERRORS: Final = 8
_SHOWN_INPUT: Final = 80


class _Schema(GenerateJsonSchema):
    """JSON schema without the titles that pydantic derives from names: they tell nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        whole = super().generate(schema, mode)
        whole.pop("title", None)
        return whole

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """A default that JSON cannot hold is left out, and is no concern of the model's."""


@dataclass(frozen=True, eq=False)
class Signature:
    """What a function takes, checked and in the form that a model reads."""

    description: str
    parameters: Mapping[str, Any]
    """A JSON schema of type object."""
    takes_context: bool
    _model: type[BaseModel]
    _names: Mapping[str, str]

    def read(self, arguments: str) -> dict[str, Any]:
        """Turn a call's JSON text into keyword arguments; parameters left out are left out.

        Raises `ToolError` with a text that tells the model what to correct.
        """
        try:
            values = self._model.model_validate_json(arguments.strip() or "{}")
        except ValidationError as error:
            raise ToolError(_explain(error)) from error
        return {self._names[key]: getattr(values, key) for key in values.model_fields_set}


def read_signature(
    function: Callable[..., Any], *, tool: str, names: Mapping[str, Any]
) -> Signature:
    """Read what `function` takes; raises `Invalid` if a model could not call it so.

    `names` are those around the function that its annotations may use.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise _invalid(tool, f"has no readable signature: {error}") from error
    hints = _hints(function, names, tool)
    takes_context = bool(parameters) and _is_context(hints.get(parameters[0].name))
    if takes_context:
        parameters = parameters[1:]
    for parameter in parameters:
        _check(parameter, hints.get(parameter.name), tool)
    words = _words(function)
    model = _arguments_model(parameters, hints, words, tool)
    return Signature(
        description=(words.description or "").strip(),
        parameters=_json_schema(model, tool),
        takes_context=takes_context,
        _model=model,
        _names={f"p{i}": parameter.name for i, parameter in enumerate(parameters)},
    )


def _hints(function: Callable[..., Any], names: Mapping[str, Any], tool: str) -> dict[str, Any]:
    """The parameters' types; the return type is nobody's concern and may not resolve."""
    inner = inspect.unwrap(function)
    inner = getattr(inner, "__func__", inner)
    annotations = {k: v for k, v in getattr(inner, "__annotations__", {}).items() if k != "return"}
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotations),
            globalns=getattr(inner, "__globals__", {}),
            localns=dict(names),
            include_extras=True,
        )
    except Exception as error:
        raise _invalid(
            tool,
            f"has an annotation that does not resolve: {error}; "
            "define or import its types before the function, outside TYPE_CHECKING",
        ) from error


def _is_context(hint: Any) -> bool:
    return hint is ToolContext or get_origin(hint) is ToolContext


def _check(parameter: inspect.Parameter, hint: Any, tool: str) -> None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise _invalid(tool, f"takes {parameter}; name each parameter, a model cannot guess them")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise _invalid(tool, f"takes {name!r} by position only; models give arguments by name")
    if _is_context(hint):
        raise _invalid(tool, f"takes the context as {name!r}; it must be the first parameter")
    if hint is None:
        raise _invalid(tool, f"parameter {name!r} has no annotation; its type makes the schema")
    if isinstance(parameter.default, FieldInfo):
        raise _invalid(tool, f"parameter {name!r}: write Annotated[T, Field(...)] = default")


def _words(function: Callable[..., Any]) -> Docstring:
    """The docstring's parts, whatever style it is written in."""
    text = inspect.getdoc(function) or ""
    try:
        return parse(text)
    except ParseError:
        plain = Docstring()
        plain.short_description = text
        return plain


def _arguments_model(
    parameters: list[inspect.Parameter], hints: Mapping[str, Any], words: Docstring, tool: str
) -> type[BaseModel]:
    """A model with one field per parameter.

    Fields are called `p0`, `p1` with the parameters' names as aliases, since a parameter may be
    called `schema` or `_x`, and a field may not.
    """
    told = {param.arg_name: param.description for param in words.params if param.description}
    fields: dict[str, Any] = {}
    for i, parameter in enumerate(parameters):
        extra: dict[str, Any] = {"alias": parameter.name}
        if parameter.default is not parameter.empty:
            extra["default"] = parameter.default
        if parameter.name in told and not _describes(hints[parameter.name]):
            extra["description"] = told[parameter.name]
        fields[f"p{i}"] = (hints[parameter.name], Field(**extra))
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    try:
        return create_model(tool, __config__=config, **fields)
    except (PydanticUserError, TypeError, ValueError) as error:
        raise _invalid(tool, f"cannot be described to a model: {_first_line(error)}") from error


def _describes(hint: Any) -> bool:
    """Whether an `Annotated` type brings its own description."""
    return FieldInfo.from_annotation(hint).description is not None


def _json_schema(model: type[BaseModel], tool: str) -> dict[str, Any]:
    try:
        schema = model.model_json_schema(schema_generator=_Schema)
    except PydanticUserError as error:
        raise _invalid(tool, f"cannot be described to a model: {_first_line(error)}") from error
    schema.setdefault("properties", {})
    return schema


def _explain(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False)
    lines = [_line(detail) for detail in found[:_SHOWN_ERRORS]]
    if len(found) > _SHOWN_ERRORS:
        lines.append(f"and {len(found) - _SHOWN_ERRORS} more")
    return "the arguments are wrong, the tool was not run: " + "; ".join(lines)


def _line(detail: ErrorDetails) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    text = f"{where}: {detail['msg']}" if where else detail["msg"]
    if detail["type"] in ("missing", "extra_forbidden", "json_invalid"):
        return text
    return f"{text} (got {_shown(detail['input'])})"


def _shown(value: Any) -> str:
    if value is PydanticUndefined:
        return "nothing"
    text = json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN_INPUT else text[: _SHOWN_INPUT - 1] + "…"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _invalid(tool: str, reason: str) -> Invalid:
    return Invalid(field=f"tool {tool!r}", reason=reason, unchanged="nothing was started")
