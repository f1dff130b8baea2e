"""`@tool`: what a model is told of a function, and how its arguments are checked."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import FrozenInstanceError
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from changeover_shared._errors import Invalid, ToolError
from changeover_shared._words import Effect
from changeover_worker._tools.context import StopSignal, ToolContext, ToolStopped
from changeover_worker._tools.tool import Tool, tool

CONTEXT: ToolContext[None] = ToolContext(
    session_id="telegram:42", turn_id="t_3", call_id="call_1", fence=7, resources=None
)


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Address(BaseModel):
    street: str
    number: int


def bound(made: Tool[..., Any], arguments: str) -> Any:
    return made.bind(arguments, CONTEXT)()


def refusal(made: Tool[..., Any], arguments: str) -> str:
    with pytest.raises(ToolError) as caught:
        made.bind(arguments, CONTEXT)
    return str(caught.value)


@tool
def forecast(city: str, days: int = 3, unit: Literal["c", "f"] = "c") -> str:
    """Tell the weather of the coming days.

    Only cities are known.

    Args:
        city: The city's name in English.
        days: How many days ahead.

    Returns:
        One line a day.
    """
    return f"{city} {days} {unit}"


def test_a_bare_decorator_makes_a_tool_with_the_defaults() -> None:
    assert forecast.name == "forecast"
    assert forecast.effect is Effect.ONCE
    assert forecast.timeout == timedelta(seconds=60)
    assert forecast.threaded
    assert not forecast.takes_context


def test_a_tool_is_still_the_function() -> None:
    assert forecast("Bern", days=1) == "Bern 1 c"


def test_a_tool_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        forecast.name = "other"  # type: ignore[misc]


def test_the_signature_and_the_docstring_make_what_the_model_is_told() -> None:
    assert forecast.spec.name == "forecast"
    assert forecast.spec.description == (
        "Tell the weather of the coming days.\n\nOnly cities are known."
    )
    assert forecast.spec.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string", "description": "The city's name in English."},
            "days": {"type": "integer", "default": 3, "description": "How many days ahead."},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        },
        "required": ["city"],
    }


def google(city: str) -> None:
    """Do it.

    Args:
        city: where
    """


def numpy(city: str) -> None:
    """Do it.

    Parameters
    ----------
    city : str
        where
    """


def rest(city: str) -> None:
    """Do it.

    :param city: where
    """


@pytest.mark.parametrize("function", [google, numpy, rest])
def test_each_docstring_style_describes_the_parameters(function: Callable[[str], None]) -> None:
    made = tool(function)
    assert made.description == "Do it."
    assert made.parameters["properties"]["city"]["description"] == "where"


def test_a_description_in_the_type_wins_over_the_docstring() -> None:
    @tool
    def look(city: Annotated[str, Field(description="typed", min_length=2)]) -> None:
        """Look.

        Args:
            city: written
        """

    assert look.parameters["properties"]["city"] == {
        "type": "string",
        "description": "typed",
        "minLength": 2,
    }


def test_a_tool_without_docstring_and_parameters_is_described_all_the_same() -> None:
    @tool
    async def ping() -> None: ...

    assert ping.description == ""
    assert ping.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
    }


def test_the_context_is_given_and_not_asked_of_the_model() -> None:
    @tool
    def who(ctx: ToolContext, name: str) -> str:
        return f"{name} {ctx.idempotency_key}"

    @tool
    def typed(context: ToolContext[None]) -> int:
        return context.fence

    assert who.takes_context
    assert list(who.parameters["properties"]) == ["name"]
    assert bound(who, '{"name": "Ada"}') == "Ada telegram:42/t_3/0/call_1"
    assert bound(typed, "{}") == 7


def test_the_model_cannot_give_the_context() -> None:
    @tool
    def who(ctx: ToolContext) -> None: ...

    assert "ctx: Extra inputs are not permitted" in refusal(who, '{"ctx": {}}')


def test_arguments_become_what_the_annotations_say() -> None:
    @tool
    def order(day: date, size: Size, to: Address, notes: list[str] | None = None) -> Any:
        return day, size, to, notes

    got = bound(
        order,
        '{"day": "2031-02-03", "size": "large", "to": {"street": "Main", "number": "5"}}',
    )
    assert got == (date(2031, 2, 3), Size.LARGE, Address(street="Main", number=5), None)


def test_parameters_left_out_keep_the_functions_own_default() -> None:
    marker = object()

    @tool
    def peek(value: Any = marker) -> Any:
        return value

    assert bound(peek, "{}") is marker
    assert bound(peek, '{"value": null}') is None


def test_parameters_may_be_called_what_pydantic_keeps_for_itself() -> None:
    @tool
    def odd(schema: str, _x: int, model_config: int, self: int) -> Any:
        return schema, _x, model_config, self

    assert list(odd.parameters["properties"]) == ["schema", "_x", "model_config", "self"]
    assert bound(odd, '{"schema": "s", "_x": 1, "model_config": 2, "self": 3}') == ("s", 1, 2, 3)


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_no_arguments_text_counts_as_no_arguments(text: str) -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert bound(ping, text) == "pong"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"city": "Bern"', "Invalid JSON"),
        ("Bern", "Invalid JSON"),
        ("[]", "Input should be an object (got [])"),
        ("null", "Input should be an object (got null)"),
        ("{}", "city: Field required"),
        ('{"city": 3}', "city: Input should be a valid string (got 3)"),
        ('{"city": "Bern", "days": "many"}', 'unable to parse string as an integer (got "many")'),
        ('{"city": "Bern", "unit": "k"}', "unit: Input should be 'c' or 'f'"),
        ('{"city": "Bern", "town": 1}', "town: Extra inputs are not permitted"),
        ('{"city": "\\ud800"}', "Invalid JSON"),
        ('{"city": "\ud800"}', "valid string"),
        ('{"p0": "Bern"}', "p0: Extra inputs are not permitted"),
        ('{"city":' + "[" * 1000 + "]" * 1000 + "}", "recursion limit"),
    ],
)
def test_wrong_arguments_are_told_to_the_model_and_nothing_is_run(
    arguments: str, said: str
) -> None:
    text = refusal(forecast, arguments)
    assert said in text
    assert "the tool was not run" in text
    text.encode()


def test_a_float_takes_no_nan() -> None:
    @tool
    def half(x: float) -> float:
        return x / 2

    assert "x: Input should be a finite number" in refusal(half, '{"x": NaN}')


def test_what_is_told_of_wrong_arguments_is_bounded() -> None:
    @tool
    def many(values: list[int]) -> None: ...

    text = refusal(many, '{"values": [' + ", ".join(['"' + "x" * 5000 + '"'] * 500) + "]}")
    assert "and 492 more" in text
    assert len(text) < 2000


def test_an_undecorated_wrapper_of_async_def_runs_inline() -> None:
    def traced(function: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Awaitable[str]:
            return function(*args, **kwargs)

        return call

    @tool
    @traced
    async def echo(text: str) -> str:
        return text

    assert not echo.threaded
    assert list(echo.parameters["properties"]) == ["text"]


def test_options_are_taken() -> None:
    @tool(name="look-up", effect="pure", isolation="inline", timeout="5m")
    def look_up() -> None: ...

    assert look_up.name == "look-up"
    assert look_up.effect is Effect.PURE
    assert look_up.timeout == timedelta(minutes=5)
    assert not look_up.threaded


def test_annotations_may_use_what_is_defined_beside_the_function() -> None:
    class Local(BaseModel):
        x: int

    @tool
    def bare(value: Local) -> int:
        return value.x

    @tool(effect="pure")
    def with_options(value: Local) -> int:
        return value.x

    assert bound(bare, '{"value": {"x": 3}}') == 3
    assert bound(with_options, '{"value": {"x": 3}}') == 3


def test_a_method_can_be_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> str:
            """The price of an item."""
            return f"{item}: 3"

    made = tool(Shop().price)
    assert made.description == "The price of an item."
    assert bound(made, '{"item": "tea"}') == "tea: 3"


def no_annotation(x) -> None: ...  # type: ignore[no-untyped-def]


def star(*args: int) -> None: ...


def starstar(**kwargs: int) -> None: ...


def by_position(x: int, /) -> None: ...


def late_context(x: int, ctx: ToolContext) -> None: ...


def unresolved(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def a_function(x: Callable[[], int]) -> None: ...


def a_thing(x: StopSignal) -> None: ...


def field_default(x: int = Field(default=3)) -> None: ...


def yields(x: int) -> Any:
    yield x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_annotation, "parameter 'x' has no annotation"),
        (star, "takes *args"),
        (starstar, "takes **kwargs"),
        (by_position, "takes 'x' by position only"),
        (late_context, "takes the context as 'ctx'; it must be the first parameter"),
        (unresolved, "annotation that does not resolve: name 'Missing' is not defined"),
        (a_function, "cannot be described to a model"),
        (a_thing, "cannot be described to a model"),
        (field_default, "write Annotated[T, Field(...)] = default"),
        (yields, "yields; a tool returns its result as a whole"),
        (lambda: None, "name '<lambda>' is not 1 to 64 characters"),
        (3, "3 is no function"),
    ],
)
def test_a_function_that_a_model_could_not_call_is_refused(function: Any, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        tool(function)
    assert said in str(caught.value)
    assert str(caught.value).endswith("nothing was started")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "a b"}, "name 'a b' is not 1 to 64 characters"),
        ({"name": "x" * 65}, "is not 1 to 64 characters"),
        ({"name": ""}, "name '' is not 1 to 64 characters"),
        ({"name": "grüezi"}, "is not 1 to 64 characters"),
        ({"effect": "twice"}, "effect 'twice' is none of pure, idempotent, once"),
        ({"isolation": "process"}, "isolation 'process' is none of auto, inline, thread"),
        ({"timeout": "soon"}, "'soon' is no duration"),
        ({"timeout": "0s"}, "a timeout of 0 would let no call end"),
    ],
)
def test_an_option_that_is_none_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        tool(**options)(google)
    assert said in str(caught.value)


def test_async_def_in_a_thread_is_refused() -> None:
    async def fetch() -> None: ...

    with pytest.raises(Invalid, match="is async def and runs inline"):
        tool(isolation="thread")(fetch)


def test_check_passes_until_the_call_is_stopped_and_the_first_reason_stays() -> None:
    parent = StopSignal()
    ctx = ToolContext(
        session_id="s", turn_id="t_1", call_id="c", fence=1, resources=None, stop=StopSignal(parent)
    )
    ctx.check()
    parent.set("the turn was interrupted")
    parent.set("the lease is lost")
    with pytest.raises(ToolStopped, match="the turn was interrupted"):
        ctx.check()


def test_stopping_one_call_leaves_the_others_alone() -> None:
    parent = StopSignal()
    StopSignal(parent).set("its time is over")
    assert parent.reason is None


def test_the_idempotency_key_is_the_same_for_each_attempt() -> None:
    first = ToolContext(session_id="s", turn_id="t_1", call_id="c", fence=1, resources=None)
    again = ToolContext(
        session_id="s", turn_id="t_1", call_id="c", fence=2, attempt=2, resources=None
    )
    assert first.idempotency_key == again.idempotency_key == "s/t_1/0/c"
