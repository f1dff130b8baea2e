"""What agent authors import."""

from changeover_shared._budget import Budget
from changeover_shared._errors import OutcomeUnknown, StepFailed, StopTurn, ToolError
from changeover_shared._items import (
    AssistantMessage,
    Attachment,
    Item,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from changeover_shared._policies import Debounce, Policy
from changeover_worker import _installed  # noqa: F401  before what needs the extra
from changeover_worker._agent import Agent, TurnContext
from changeover_worker._app import App
from changeover_worker._compaction import Compaction
from changeover_worker._handler import StepMismatch, Turn, TurnStopped
from changeover_worker._models import AnthropicModel, OpenAIModel
from changeover_worker._models.fallback import Fallback
from changeover_worker._models.limit import Limit
from changeover_worker._models.model import (
    Emit,
    EmitRefused,
    Model,
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolSpec,
    UsageDelta,
)
from changeover_worker._models.price import Price
from changeover_worker._tools.context import ToolContext, ToolStopped
from changeover_worker._tools.tool import Tool, tool

__all__ = [
    "Agent",
    "AnthropicModel",
    "App",
    "AssistantMessage",
    "Attachment",
    "Budget",
    "Compaction",
    "Debounce",
    "Emit",
    "EmitRefused",
    "Fallback",
    "Item",
    "Limit",
    "Model",
    "ModelDelta",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "OpenAIModel",
    "OutcomeUnknown",
    "Policy",
    "Price",
    "ReasoningDelta",
    "StepFailed",
    "StepMismatch",
    "StopTurn",
    "TextDelta",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "ToolStopped",
    "Turn",
    "TurnContext",
    "TurnStopped",
    "Usage",
    "UsageDelta",
    "UserMessage",
    "tool",
]
