"""Anthropic's messages on the wire: streams as the provider sends them.

What this dialect cannot express:

- joined by id: a piece of a call carries the index of its block and nothing else; the id stands
  only where the block begins.
- late usage: there are no choices; the counts come beside the stop reason, which the last event
  follows.
"""
# ruff: noqa: E501  the streams stand as they are sent

from __future__ import annotations

from typing import Final

from changeover_shared._items import ToolResult, Usage, UserMessage
from changeover_worker._models import AnthropicModel
from tests.support.asking import ask
from tests.support.model_server import ModelServer, Reply
from tests.support.wire import Wire, check, check_complete, labelled

TABLE: Final = (
    Wire(
        "split calls",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: ping
        data: {"type":"ping"}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"key"}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\":\"ü"}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"x\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"üx"}')],
        usage=Usage(input_tokens=19, output_tokens=10, cached_input_tokens=4, reasoning_tokens=2),
    ),
    Wire(
        "several calls",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"b\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}'), ("toolu_b", '{"key":"b"}')],
    ),
    Wire(
        "several calls",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I look."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: content_block_start
        data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":2}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="I look.",
        phase="commentary",
        calls=[("toolu_a", "{}"), ("toolu_b", "{}")],
        note="beside text, one without arguments",
    ),
    Wire(
        "several calls",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{"key":"a"}}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key": "a"}')],
        note="one that comes whole at its start",
    ),
    Wire(
        "interleaved calls",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"key\""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":":\"a\"}"}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":":\"b\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}'), ("toolu_b", '{"key":"b"}')],
    ),
    Wire(
        "used index",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":":\"b\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}'), ("toolu_b", '{"key":"b"}')],
    ),
    Wire(
        "missing index",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"I look."}}

        event: content_block_stop
        data: {"type":"content_block_stop"}

        event: content_block_start
        data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop"}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="I look.",
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}')],
    ),
    Wire(
        "joined by position",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"key\""}}

        event: content_block_delta
        data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop"}

        event: content_block_start
        data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"key\""}}

        event: content_block_delta
        data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":":\"b\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop"}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}'), ("toolu_b", '{"key":"b"}')],
    ),
    Wire(
        "calls whatever the finish says",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}')],
        note="end_turn",
    ),
    Wire(
        "calls whatever the finish says",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"stop_sequence","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}')],
        note="stop_sequence",
    ),
    Wire(
        "calls whatever the finish says",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"pause_turn","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}')],
        note="pause_turn",
    ),
    Wire(
        "empty final",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        note="an answer without a word",
    ),
    Wire(
        "empty final",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"All."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: content_block_start
        data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":""}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":2}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="All.",
        note="blocks without text behind the text",
    ),
    Wire(
        "comment lines",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        : keep-alive

        event: ping
        data: {"type":"ping"}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"He"}}

        : keep-alive
        :

        event: ping
        data: {"type":"ping"}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"llo."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        : keep-alive

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="Hello.",
        usage=Usage(input_tokens=19, output_tokens=10, cached_input_tokens=4, reasoning_tokens=2),
    ),
    Wire(
        "reasoning",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Yes."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="Yes.",
        reasoning="Let me see.",
        note="unsigned, so that it is not kept",
    ),
    Wire(
        "opaque reasoning",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Look it "}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"up."}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqgfCiofirst"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"EmwKAhgBsecond"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: content_block_start
        data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"I look."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":2}

        event: content_block_start
        data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":3}

        event: content_block_start
        data: {"type":"content_block_start","index":4,"content_block":{"type":"thinking","thinking":"","signature":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":4,"delta":{"type":"signature_delta","signature":"EqgfCiothird"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":4}

        event: content_block_start
        data: {"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"b\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":5}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="I look.",
        phase="commentary",
        reasoning="Look it up.",
        calls=[("toolu_a", '{"key":"a"}'), ("toolu_b", '{"key":"b"}')],
        opaque=[
            {"type": "thinking", "thinking": "Look it up.", "signature": "EqgfCiofirst"},
            {"type": "redacted_thinking", "data": "EmwKAhgBsecond"},
            {"type": "thinking", "thinking": "", "signature": "EqgfCiothird"},
        ],
    ),
    Wire(
        "refusal",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":null,"explanation":"I can't help with that."}},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="I can't help with that.",
        phase="refusal",
        stop="refusal",
    ),
    Wire(
        "refusal",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Well, "}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="Well, ",
        phase="refusal",
        stop="refusal",
        note="in mid-text",
    ),
    Wire(
        "length in text",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half an "}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ans"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="Half an ans",
        stop="length",
        usage=Usage(input_tokens=19, output_tokens=10, cached_input_tokens=4, reasoning_tokens=2),
    ),
    Wire(
        "length in text",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half an ans"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        text="Half an ans",
        stop="length",
        note="of the context window",
    ),
    Wire(
        "length in a call",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_b","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"b"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":1}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}'), ("toolu_b", '{"key":"b')],
        stop="length",
    ),
    Wire(
        "length in a call",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: message_delta
        data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":10,"output_tokens_details":{"thinking_tokens":2}}}

        event: message_stop
        data: {"type":"message_stop"}
        """,
        phase="commentary",
        calls=[("toolu_a", "")],
        stop="length",
        note="before its arguments",
    ),
    Wire(
        "error object",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half"}}

        event: error
        data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}
        """,
        text="Half",
        fails=("provider_server", True),
    ),
    Wire(
        "error object",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half"}}

        event: error
        data: {"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit."}}
        """,
        text="Half",
        fails=("provider_rate_limit", True),
        note="a rate limit",
    ),
    Wire(
        "error object",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: error
        data: {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}
        """,
        fails=("provider_request", False),
        note="that would come again",
    ),
    Wire(
        "cut before the first byte",
        "",
        fails=("provider_connection", True),
        then="cut",
        head=False,
    ),
    Wire(
        "cut in text",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_de
        """,
        text="Hel",
        fails=("provider_stream", True),
        then="cut",
    ),
    Wire(
        "cut in a call",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial
        """,
        fails=("provider_stream", True),
        then="cut",
    ),
    Wire(
        "no finish, nothing open",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"All of it."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}
        """,
        text="All of it.",
    ),
    Wire(
        "no finish, nothing open",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}
        """,
        phase="commentary",
        calls=[("toolu_a", '{"key":"a"}')],
        note="whole calls",
    ),
    Wire(
        "no finish, a call open",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a"}}
        """,
        fails=("provider_stream", True),
    ),
    Wire(
        "no finish, a call open",
        r"""
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"key\":\"a\"}"}}
        """,
        fails=("provider_stream", True),
        note="whose arguments look whole",
    ),
    Wire(
        "no finish, a call open",
        """
        event: message_start
        data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":15,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}}}

        event: content_block_start
        data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

        event: content_block_delta
        data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I look."}}

        event: content_block_stop
        data: {"type":"content_block_stop","index":0}

        event: content_block_start
        data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_a","name":"lookup","input":{}}}
        """,
        text="I look.",
        fails=("provider_stream", True),
        note="before its arguments",
    ),
)


@labelled(TABLE)
async def test_a_stream_is_heard_as_it_was_meant(wire: Wire, cutting: str) -> None:
    await check("messages", wire, cutting)


def test_every_feature_is_in_the_table_or_said_to_be_missing() -> None:
    check_complete(TABLE, __doc__)


async def test_signed_reasoning_goes_back_in_order_and_only_to_its_provider() -> None:
    [wire] = [each for each in TABLE if each.feature == "opaque reasoning"]
    reply = Reply((wire.body,))
    async with ModelServer(reply, reply) as theirs, ModelServer(reply) as others:
        model = AnthropicModel("m", base_url=theirs.origin)
        other = AnthropicModel("m", base_url=others.origin)
        said = (await ask(model)).response.message
        results = [
            ToolResult(call_id=each, name="lookup", output=1) for each in ("toolu_a", "toolu_b")
        ]
        await ask(model, UserMessage(text="?"), said, *results)
        await ask(other, UserMessage(text="?"), said, *results)
        await model.aclose()
        await other.aclose()

    first, hidden, third = wire.opaque
    call = {"type": "tool_use", "name": "lookup"}
    text = {"type": "text", "text": "I look."}
    a = {**call, "id": "toolu_a", "input": {"key": "a"}}
    b = {**call, "id": "toolu_b", "input": {"key": "b"}}
    assert theirs.requests[1].body["messages"][1]["content"] == [first, hidden, text, a, third, b]
    assert others.requests[0].body["messages"][1]["content"] == [text, a, b]
