"""OpenAI's responses on the wire: streams as the provider sends them.

What this dialect cannot express:

- calls whatever the finish says: a response is `completed` or `incomplete`, and says no more of
  its calls than that.
- late usage: the counts come in the last event, which also sums the answer up.
"""
# ruff: noqa: E501  the streams stand as they are sent

from __future__ import annotations

from typing import Final

from changeover_shared._items import ToolResult, Usage, UserMessage
from changeover_worker._models import OpenAIModel
from tests.support.asking import ask
from tests.support.model_server import ModelServer, Reply
from tests.support.wire import Wire, check, check_complete, labelled

TABLE: Final = (
    Wire(
        "split calls",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"","sequence_number":3}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"key","sequence_number":4}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"\":\"ü","sequence_number":5}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"x\"}","sequence_number":6}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_call_a","arguments":"{\"key\":\"üx\"}","sequence_number":7}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"üx\"}","call_id":"call_a","name":"lookup"},"sequence_number":8}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"üx\"}","call_id":"call_a","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":9}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"üx"}')],
        usage=Usage(input_tokens=19, output_tokens=10, cached_input_tokens=4, reasoning_tokens=2),
    ),
    Wire(
        "several calls",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\":\"a\"}","sequence_number":3}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":4}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":5}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"fc_call_b","type":"function_call","status":"in_progress","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":6}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_call_b","delta":"{\"key\":\"b\"}","sequence_number":7}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":1,"item_id":"fc_call_b","arguments":"{\"key\":\"b\"}","sequence_number":8}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"},"sequence_number":9}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":10}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "several calls",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"I look.","logprobs":[],"sequence_number":4}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":0,"item_id":"msg_1","content_index":0,"text":"I look.","logprobs":[],"sequence_number":5}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"I look.","annotations":[]},"sequence_number":6}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},"sequence_number":7}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":8}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_call_a","delta":"{}","sequence_number":9}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":1,"item_id":"fc_call_a","arguments":"{}","sequence_number":10}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{}","call_id":"call_a","name":"lookup"},"sequence_number":11}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_call_b","type":"function_call","status":"in_progress","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":12}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":2,"item_id":"fc_call_b","arguments":"","sequence_number":13}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":14}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{}","call_id":"call_a","name":"lookup"},{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"","call_id":"call_b","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":15}
        """,
        text="I look.",
        phase="commentary",
        calls=[("call_a", "{}"), ("call_b", "{}")],
        note="beside text, one without arguments",
    ),
    Wire(
        "several calls",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":2}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
        note="only summed up in the last event",
    ),
    Wire(
        "interleaved calls",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"fc_call_b","type":"function_call","status":"in_progress","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":3}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\"","sequence_number":4}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_call_b","delta":"{\"key\"","sequence_number":5}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":":\"a\"}","sequence_number":6}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_call_b","delta":":\"b\"}","sequence_number":7}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":1,"item_id":"fc_call_b","arguments":"{\"key\":\"b\"}","sequence_number":8}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"},"sequence_number":9}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":10}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":11}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":12}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "used index",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\":\"a\"}","sequence_number":3}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":4}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":5}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_b","type":"function_call","status":"in_progress","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":6}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_b","delta":"{\"key\"","sequence_number":7}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_b","delta":":\"b\"}","sequence_number":8}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_call_b","arguments":"{\"key\":\"b\"}","sequence_number":9}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"},"sequence_number":10}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":11}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "missing index",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","item_id":"msg_1","content_index":0,"delta":"I ","logprobs":[],"sequence_number":4}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","item_id":"msg_1","content_index":0,"delta":"look.","logprobs":[],"sequence_number":5}

        event: response.output_text.done
        data: {"type":"response.output_text.done","item_id":"msg_1","content_index":0,"text":"I look.","logprobs":[],"sequence_number":6}

        event: response.content_part.done
        data: {"type":"response.content_part.done","item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"I look.","annotations":[]},"sequence_number":7}

        event: response.output_item.done
        data: {"type":"response.output_item.done","item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},"sequence_number":8}

        event: response.output_item.added
        data: {"type":"response.output_item.added","item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":9}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","item_id":"fc_call_a","delta":"{\"key\"","sequence_number":10}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","item_id":"fc_call_a","delta":":\"a\"}","sequence_number":11}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":12}

        event: response.output_item.done
        data: {"type":"response.output_item.done","item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":13}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":14}
        """,
        text="I look.",
        phase="commentary",
        calls=[("call_a", '{"key":"a"}')],
    ),
    Wire(
        "joined by id",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.output_item.added
        data: {"type":"response.output_item.added","item":{"id":"fc_call_b","type":"function_call","status":"in_progress","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":3}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","item_id":"fc_call_a","delta":"{\"key\"","sequence_number":4}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","item_id":"fc_call_b","delta":"{\"key\"","sequence_number":5}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","item_id":"fc_call_a","delta":":\"a\"}","sequence_number":6}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","item_id":"fc_call_b","delta":":\"b\"}","sequence_number":7}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":8}

        event: response.output_item.done
        data: {"type":"response.output_item.done","item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":9}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","item_id":"fc_call_b","arguments":"{\"key\":\"b\"}","sequence_number":10}

        event: response.output_item.done
        data: {"type":"response.output_item.done","item":{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"},"sequence_number":11}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},{"id":"fc_call_b","type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":12}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "joined by position",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","item":{"type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","delta":"{\"key\"","sequence_number":3}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","delta":":\"a\"}","sequence_number":4}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","arguments":"{\"key\":\"a\"}","sequence_number":5}

        event: response.output_item.done
        data: {"type":"response.output_item.done","item":{"type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":6}

        event: response.output_item.added
        data: {"type":"response.output_item.added","item":{"type":"function_call","status":"in_progress","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":7}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","delta":"{\"key\"","sequence_number":8}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","delta":":\"b\"}","sequence_number":9}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","arguments":"{\"key\":\"b\"}","sequence_number":10}

        event: response.output_item.done
        data: {"type":"response.output_item.done","item":{"type":"function_call","status":"completed","arguments":"{\"key\":\"b\"}","call_id":"call_b","name":"lookup"},"sequence_number":11}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":12}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "empty final",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":2}
        """,
        usage=Usage(input_tokens=19, output_tokens=10, cached_input_tokens=4, reasoning_tokens=2),
        note="an answer without a word",
    ),
    Wire(
        "empty final",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"All.","logprobs":[],"sequence_number":4}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":0,"item_id":"msg_1","content_index":0,"text":"All.","logprobs":[],"sequence_number":5}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"All.","annotations":[]},"sequence_number":6}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"All.","annotations":[]}]},"sequence_number":7}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_2","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":8}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":1,"item_id":"msg_2","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":9}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_2","type":"message","status":"completed","role":"assistant","content":[]},"sequence_number":10}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"All.","annotations":[]}]},{"id":"msg_2","type":"message","status":"completed","role":"assistant","content":[]}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":11}
        """,
        text="All.",
        note="an empty message behind the text",
    ),
    Wire(
        "comment lines",
        """
        : keep-alive

        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"He","logprobs":[],"sequence_number":4}

        : keep-alive
        :

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"llo.","logprobs":[],"sequence_number":5}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]}]},"sequence_number":6}

        : keep-alive

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":7}
        """,
        text="Hello.",
    ),
    Wire(
        "reasoning",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]},"sequence_number":2}

        event: response.reasoning_summary_text.delta
        data: {"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":0,"delta":"Let me ","sequence_number":3}

        event: response.reasoning_summary_text.delta
        data: {"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":0,"delta":"see.","sequence_number":4}

        event: response.reasoning_summary_text.done
        data: {"type":"response.reasoning_summary_text.done","output_index":0,"item_id":"rs_1","summary_index":0,"text":"Let me see.","sequence_number":5}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me see."}]},"sequence_number":6}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":7}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":1,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":8}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":1,"item_id":"msg_1","content_index":0,"delta":"Yes.","logprobs":[],"sequence_number":9}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":1,"item_id":"msg_1","content_index":0,"text":"Yes.","logprobs":[],"sequence_number":10}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":1,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"Yes.","annotations":[]},"sequence_number":11}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[]}]},"sequence_number":12}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me see."}]},{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[]}]}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":13}
        """,
        text="Yes.",
        reasoning="Let me see.",
        note="reasoning_summary_text",
    ),
    Wire(
        "reasoning",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]},"sequence_number":2}

        event: response.reasoning_text.delta
        data: {"type":"response.reasoning_text.delta","output_index":0,"item_id":"rs_1","content_index":0,"delta":"Let me ","sequence_number":3}

        event: response.reasoning_text.delta
        data: {"type":"response.reasoning_text.delta","output_index":0,"item_id":"rs_1","content_index":0,"delta":"see.","sequence_number":4}

        event: response.reasoning_text.done
        data: {"type":"response.reasoning_text.done","output_index":0,"item_id":"rs_1","content_index":0,"text":"Let me see.","sequence_number":5}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me see."}]},"sequence_number":6}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":7}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":1,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":8}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":1,"item_id":"msg_1","content_index":0,"delta":"Yes.","logprobs":[],"sequence_number":9}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":1,"item_id":"msg_1","content_index":0,"text":"Yes.","logprobs":[],"sequence_number":10}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":1,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"Yes.","annotations":[]},"sequence_number":11}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[]}]},"sequence_number":12}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me see."}]},{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[]}]}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":13}
        """,
        text="Yes.",
        reasoning="Let me see.",
        note="reasoning_text",
    ),
    Wire(
        "opaque reasoning",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"},"sequence_number":2}

        event: response.reasoning_summary_text.delta
        data: {"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":0,"delta":"Look it up.","sequence_number":3}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Look it up."}],"encrypted_content":"gAAAfirst"},"sequence_number":4}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[],"phase":"commentary"},"sequence_number":5}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":1,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":6}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":1,"item_id":"msg_1","content_index":0,"delta":"I look.","logprobs":[],"sequence_number":7}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":1,"item_id":"msg_1","content_index":0,"text":"I look.","logprobs":[],"sequence_number":8}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":1,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"I look.","annotations":[]},"sequence_number":9}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}],"phase":"commentary"},"sequence_number":10}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":2,"item":{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"gAAA"},"sequence_number":11}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":2,"item":{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"gAAAsecond"},"sequence_number":12}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":3,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":13}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":3,"item_id":"fc_call_a","delta":"{\"key\":\"a\"}","sequence_number":14}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":3,"item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":15}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":3,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":16}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Look it up."}],"encrypted_content":"gAAAfirst"},{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}],"phase":"commentary"},{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"gAAAsecond"},{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":17}
        """,
        text="I look.",
        phase="commentary",
        reasoning="Look it up.",
        calls=[("call_a", '{"key":"a"}')],
        opaque=[
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Look it up."}],
                "encrypted_content": "gAAAfirst",
            },
            {"type": "phase", "phase": "commentary"},
            {"id": "rs_2", "type": "reasoning", "summary": [], "encrypted_content": "gAAAsecond"},
        ],
    ),
    Wire(
        "refusal",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"refusal","refusal":""},"sequence_number":3}

        event: response.refusal.delta
        data: {"type":"response.refusal.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"I can't ","sequence_number":4}

        event: response.refusal.delta
        data: {"type":"response.refusal.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"help.","sequence_number":5}

        event: response.refusal.done
        data: {"type":"response.refusal.done","output_index":0,"item_id":"msg_1","content_index":0,"refusal":"I can't help.","sequence_number":6}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"refusal","refusal":"I can't help."}]},"sequence_number":7}

        event: response.completed
        data: {"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"completed","model":"gpt-5-mini","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"refusal","refusal":"I can't help."}]}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":8}
        """,
        text="I can't help.",
        phase="refusal",
        stop="refusal",
    ),
    Wire(
        "refusal",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"Well, ","logprobs":[],"sequence_number":4}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":0,"item_id":"msg_1","content_index":0,"text":"Well, ","logprobs":[],"sequence_number":5}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"Well, ","annotations":[]},"sequence_number":6}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Well, ","annotations":[]}]},"sequence_number":7}

        event: response.incomplete
        data: {"type":"response.incomplete","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"incomplete","model":"gpt-5-mini","incomplete_details":{"reason":"content_filter"},"output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Well, ","annotations":[]}]}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":8}
        """,
        text="Well, ",
        phase="refusal",
        stop="refusal",
        note="a content filter",
    ),
    Wire(
        "length in text",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"Half an ","logprobs":[],"sequence_number":4}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"ans","logprobs":[],"sequence_number":5}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Half an ans","annotations":[]}]},"sequence_number":6}

        event: response.incomplete
        data: {"type":"response.incomplete","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"incomplete","model":"gpt-5-mini","incomplete_details":{"reason":"max_output_tokens"},"output":[{"id":"msg_1","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Half an ans","annotations":[]}]}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":7}
        """,
        text="Half an ans",
        stop="length",
        usage=Usage(input_tokens=19, output_tokens=10, cached_input_tokens=4, reasoning_tokens=2),
    ),
    Wire(
        "length in a call",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\":\"a\"}","sequence_number":3}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":4}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":5}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"fc_call_b","type":"function_call","status":"in_progress","arguments":"","call_id":"call_b","name":"lookup"},"sequence_number":6}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc_call_b","delta":"{\"key\":\"b","sequence_number":7}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":1,"item_id":"fc_call_b","arguments":"{\"key\":\"b","sequence_number":8}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"fc_call_b","type":"function_call","status":"incomplete","arguments":"{\"key\":\"b","call_id":"call_b","name":"lookup"},"sequence_number":9}

        event: response.incomplete
        data: {"type":"response.incomplete","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"incomplete","model":"gpt-5-mini","incomplete_details":{"reason":"max_output_tokens"},"output":[{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},{"id":"fc_call_b","type":"function_call","status":"incomplete","arguments":"{\"key\":\"b","call_id":"call_b","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":10}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b')],
        stop="length",
    ),
    Wire(
        "length in a call",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.incomplete
        data: {"type":"response.incomplete","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"incomplete","model":"gpt-5-mini","incomplete_details":{"reason":"max_output_tokens"},"output":[{"id":"fc_call_a","type":"function_call","status":"incomplete","arguments":"","call_id":"call_a","name":"lookup"}],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":29}},"sequence_number":3}
        """,
        phase="commentary",
        calls=[("call_a", "")],
        stop="length",
        note="before its arguments",
    ),
    Wire(
        "error object",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"Half","logprobs":[],"sequence_number":4}

        event: error
        data: {"type":"error","code":"server_error","message":"The server had an error while processing your request.","param":null,"sequence_number":5}
        """,
        text="Half",
        fails=("provider_server", True),
    ),
    Wire(
        "error object",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"Half","logprobs":[],"sequence_number":4}

        event: response.failed
        data: {"type":"response.failed","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"failed","model":"gpt-5-mini","error":{"code":"rate_limit_exceeded","message":"Rate limit reached."},"output":[{"id":"msg_1","type":"message","status":"incomplete","role":"assistant","content":[{"type":"output_text","text":"Half","annotations":[]}]}],"usage":null},"sequence_number":5}
        """,
        text="Half",
        fails=("provider_rate_limit", True),
        note="a failed response",
    ),
    Wire(
        "error object",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: error
        data: {"type":"error","code":"context_length_exceeded","message":"Your input exceeds the context window of this model.","param":"input","sequence_number":2}
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
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"Hel","logprobs":[],"sequence_number":4}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"lo","logpr
        """,
        text="Hel",
        fails=("provider_stream", True),
        then="cut",
    ),
    Wire(
        "cut in a call",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\"","sequence_number":3}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":":
        """,
        fails=("provider_stream", True),
        then="cut",
    ),
    Wire(
        "no finish, nothing open",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"All of it.","logprobs":[],"sequence_number":4}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":0,"item_id":"msg_1","content_index":0,"text":"All of it.","logprobs":[],"sequence_number":5}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"All of it.","annotations":[]},"sequence_number":6}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"All of it.","annotations":[]}]},"sequence_number":7}
        """,
        text="All of it.",
    ),
    Wire(
        "no finish, nothing open",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\":\"a\"}","sequence_number":3}

        event: response.function_call_arguments.done
        data: {"type":"response.function_call_arguments.done","output_index":0,"item_id":"fc_call_a","arguments":"{\"key\":\"a\"}","sequence_number":4}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"completed","arguments":"{\"key\":\"a\"}","call_id":"call_a","name":"lookup"},"sequence_number":5}
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}')],
        note="whole calls",
    ),
    Wire(
        "no finish, a call open",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\":\"a","sequence_number":3}
        """,
        fails=("provider_stream", True),
    ),
    Wire(
        "no finish, a call open",
        r"""
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":2}

        event: response.function_call_arguments.delta
        data: {"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc_call_a","delta":"{\"key\":\"a\"}","sequence_number":3}
        """,
        fails=("provider_stream", True),
        note="whose arguments look whole",
    ),
    Wire(
        "no finish, a call open",
        """
        event: response.created
        data: {"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":0}

        event: response.in_progress
        data: {"type":"response.in_progress","response":{"id":"resp_1","object":"response","created_at":1764500000,"status":"in_progress","model":"gpt-5-mini","output":[],"usage":null},"sequence_number":1}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]},"sequence_number":2}

        event: response.content_part.added
        data: {"type":"response.content_part.added","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"","annotations":[]},"sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"I look.","logprobs":[],"sequence_number":4}

        event: response.output_text.done
        data: {"type":"response.output_text.done","output_index":0,"item_id":"msg_1","content_index":0,"text":"I look.","logprobs":[],"sequence_number":5}

        event: response.content_part.done
        data: {"type":"response.content_part.done","output_index":0,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","text":"I look.","annotations":[]},"sequence_number":6}

        event: response.output_item.done
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look.","annotations":[]}]},"sequence_number":7}

        event: response.output_item.added
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"fc_call_a","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"lookup"},"sequence_number":8}
        """,
        text="I look.",
        fails=("provider_stream", True),
        note="before its arguments",
    ),
)


@labelled(TABLE)
async def test_a_stream_is_heard_as_it_was_meant(wire: Wire, cutting: str) -> None:
    await check("responses", wire, cutting)


def test_every_feature_is_in_the_table_or_said_to_be_missing() -> None:
    check_complete(TABLE, __doc__)


async def test_encrypted_reasoning_goes_back_in_order_and_only_to_its_provider() -> None:
    [wire] = [each for each in TABLE if each.feature == "opaque reasoning"]
    reply = Reply((wire.body,))
    async with ModelServer(reply, reply) as theirs, ModelServer(reply) as others:
        model = OpenAIModel("m", base_url=theirs.url, api="responses")
        other = OpenAIModel("m", base_url=others.url, api="responses")
        said = (await ask(model)).response.message
        history = (
            UserMessage(text="?"),
            said,
            ToolResult(call_id="call_a", name="lookup", output=1),
        )
        await ask(model, *history)
        await ask(other, *history)
        await model.aclose()
        await other.aclose()

    first, _, second = wire.opaque
    message = {"type": "message", "role": "assistant", "content": "I look."}
    call = {
        "type": "function_call",
        "call_id": "call_a",
        "name": "lookup",
        "arguments": '{"key":"a"}',
    }
    result = {"type": "function_call_output", "call_id": "call_a", "output": "1"}
    assert theirs.requests[1].body["input"][1:] == [
        first,
        {**message, "phase": "commentary"},
        second,
        call,
        result,
    ]
    assert others.requests[0].body["input"][1:] == [message, call, result]
