"""Items: what a conversation is made of, in the transcript and in what a model is shown."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

Json = JsonValue
"""Whatever JSON can hold."""


MAX_COUNT: Final = 2**53 - 1
"""The largest count: every JSON reader and Lua hold it exactly."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""How many, or a time in milliseconds."""


class Wire(BaseModel):
    """A frozen model on the wire: unknown fields of newer writers are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Attachment(Wire):
    """A file by reference; the bytes are the application's."""

    url: str
    media_type: str | None = None
    name: str | None = None
    sha256: str | None = None


class Usage(Wire):
    """Tokens, as the provider counted them; cached ones are part of `input_tokens`."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_input_tokens: Count = 0
    reasoning_tokens: Count = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        """The sum; a count that is full stays full, so that reading never fails."""
        mine, others = self.model_dump(), other.model_dump()
        return Usage(**{name: min(mine[name] + others[name], MAX_COUNT) for name in mine})


class ToolCall(Wire):
    """A call that a model asked for. `arguments` is the JSON text as the model wrote it."""

    call_id: str
    name: str
    arguments: str


class UserMessage(Wire):
    """What somebody said to the session."""

    type: Literal["user"] = "user"
    text: str
    attachments: tuple[Attachment, ...] = ()
    author: str = "user"
    submission_id: str | None = None
    reply_to: str | None = None
    """The channel that the answer goes to, if it names one."""


Phase = Literal["final_answer", "commentary", "refusal"]
"""What an assistant's text is: the answer, words beside tool calls, or a refusal."""


class AssistantMessage(Wire):
    """What a model answered in one step."""

    type: Literal["assistant"] = "assistant"
    text: str = ""
    phase: Phase = "final_answer"
    tool_calls: tuple[ToolCall, ...] = ()
    opaque: tuple[dict[str, Any], ...] = ()
    """Provider blocks (signed reasoning and the like), sent back as they came, to the provider
    named in their `provider` field only."""


class TurnStop(Wire):
    """Why a tool ends its turn as failed."""

    kind: str
    message: str


class ToolResult(Wire):
    """What a tool call came to. Errors are results: the model reads them."""

    type: Literal["tool_result"] = "tool_result"
    call_id: str
    name: str
    output: Json
    is_error: bool = False
    unknown: bool = False
    """The tool may or may not have run: it was cut off and must not be run again."""
    stop: TurnStop | None = Field(default=None, exclude=True, repr=False)
    """Set while the result is on its way to the checkpoint, whose `PendingCall` keeps it."""


StepKind = Literal["step", "model", "say", "sleep", "steering"]
"""Which of a handler's durable calls a step is."""


class StepRecord(Wire):
    """A step of a handler that has ended. Models are not shown it; a handler that is run again
    is answered from it."""

    type: Literal["step"] = "step"
    name: str
    kind: StepKind = "step"
    output: Json = None
    is_error: bool = False
    """It raised; `output` is what it said."""
    unknown: bool = False
    """It may or may not have run: its worker died, and it must not be run again."""


Item = Annotated[UserMessage | AssistantMessage | ToolResult, Field(discriminator="type")]
"""One entry of a conversation, as a model is shown it."""

AnyItem = Annotated[
    UserMessage | AssistantMessage | ToolResult | StepRecord, Field(discriminator="type")
]
"""One entry of a transcript."""

_ITEM: TypeAdapter[UserMessage | AssistantMessage | ToolResult | StepRecord] = TypeAdapter(AnyItem)


def decode_item(body: bytes | str) -> AnyItem:
    """Read one item from its JSON."""
    return _ITEM.validate_json(body)


def encode_item(item: AnyItem) -> str:
    """Write one item as JSON; its `type` always stands in it."""
    return item.model_dump_json()
