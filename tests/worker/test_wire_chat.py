"""Chat completions on the wire: streams as OpenAI and servers that speak like it send them.

What this dialect cannot express:

- opaque reasoning: it has no signed or encrypted blocks; reasoning comes as text, is shown, and
  is not sent back.
"""
# ruff: noqa: E501  the streams stand as they are sent

from __future__ import annotations

from typing import Final

from changeover_shared._items import Usage
from tests.support.wire import Wire, check, check_complete, labelled

TABLE: Final = (
    Wire(
        "split calls",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"key"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\":\"ü"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"üx"}')],
    ),
    Wire(
        "several calls",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"key\":\"b\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "several calls",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"I look."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{}"}},{"index":1,"id":"call_b","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        text="I look.",
        phase="commentary",
        calls=[("call_a", "{}"), ("call_b", "{}")],
        note="beside text, one without arguments",
    ),
    Wire(
        "interleaved calls",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"key\":"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"key\":"}},{"index":0,"function":{"arguments":"\"a\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"\"b\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "used index",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_b","type":"function","function":{"name":"lookup","arguments":"{\"key\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":\"b\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "missing index",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}')],
    ),
    Wire(
        "missing index",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"lookup","arguments":"{\"key\":\"b\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("", '{"key":"a"}'), ("", '{"key":"b"}')],
        note="and no id either",
    ),
    Wire(
        "joined by id",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_b","type":"function","function":{"name":"lookup","arguments":"{\"key\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_b","type":"function","function":{"arguments":":\"b\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_a","type":"function","function":{"arguments":":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "joined by position",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\""}},{"id":"call_b","type":"function","function":{"name":"lookup","arguments":"{\"key\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":":\"a\"}"}},{"function":{"arguments":":\"b\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
    ),
    Wire(
        "joined by position",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"id":"call_b","type":"function","function":{"name":"lookup","arguments":"{\"key\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":":\"b\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b"}')],
        note="the last one goes on",
    ),
    Wire(
        "calls whatever the finish says",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}')],
        note="stop",
    ),
    Wire(
        "calls whatever the finish says",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"function_call"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}')],
        note="function_call",
    ),
    Wire(
        "calls whatever the finish says",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"eos"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}')],
        note="eos",
    ),
    Wire(
        "empty final",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"All."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":null}]}

        data: [DONE]
        """,
        text="All.",
        note="chunks without content at the end",
    ),
    Wire(
        "empty final",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]
        """,
        note="an answer without a word",
    ),
    Wire(
        "late usage",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Hi."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}

        data: [DONE]
        """,
        text="Hi.",
        usage=Usage(input_tokens=19, output_tokens=10, cached_input_tokens=4, reasoning_tokens=2),
    ),
    Wire(
        "late usage",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Hi."},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":19,"completion_tokens":1,"total_tokens":20}}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":2,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}

        data: [DONE]
        """,
        text="Hi.",
        usage=Usage(input_tokens=19, output_tokens=2),
        note="and counts on the way, the last ones hold",
    ),
    Wire(
        "comment lines",
        """
        : OPENROUTER PROCESSING

        : keep-alive

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"He"},"logprobs":null,"finish_reason":null}]}

        : keep-alive
        :

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"llo."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        : keep-alive

        data: [DONE]
        """,
        text="Hello.",
    ),
    Wire(
        "reasoning",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"Let me "},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"reasoning_content":"see."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Yes."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]
        """,
        text="Yes.",
        reasoning="Let me see.",
        note="reasoning_content",
    ),
    Wire(
        "reasoning",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning":"Let me "},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"reasoning":"see."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Yes."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]
        """,
        text="Yes.",
        reasoning="Let me see.",
        note="reasoning",
    ),
    Wire(
        "refusal",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":null,"refusal":""},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"refusal":"I can't "},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"refusal":"help."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

        data: [DONE]
        """,
        text="I can't help.",
        phase="refusal",
        stop="refusal",
    ),
    Wire(
        "refusal",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Well, "},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"content_filter"}]}

        data: [DONE]
        """,
        text="Well, ",
        phase="refusal",
        stop="refusal",
        note="a content filter",
    ),
    Wire(
        "length in text",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Half an ans"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}

        data: [DONE]
        """,
        text="Half an ans",
        stop="length",
    ),
    Wire(
        "length in a call",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"key\":\"b"}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}'), ("call_b", '{"key":"b')],
        stop="length",
    ),
    Wire(
        "length in a call",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", "")],
        stop="length",
        note="before its arguments",
    ),
    Wire(
        "error object",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Half"},"logprobs":null,"finish_reason":null}]}

        data: {"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":null}}
        """,
        text="Half",
        fails=("provider_server", True),
    ),
    Wire(
        "error object",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Half"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"gen-1","object":"chat.completion.chunk","created":1764500000,"model":"m","choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"code":429,"message":"Rate limited upstream."}}
        """,
        text="Half",
        fails=("provider_rate_limit", True),
        note="with a status for a code, in a chunk",
    ),
    Wire(
        "error object",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}
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
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":176450000
        """,
        text="Hel",
        fails=("provider_stream", True),
        then="cut",
    ),
    Wire(
        "cut in a call",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\""}}]},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk"
        """,
        fails=("provider_stream", True),
        then="cut",
    ),
    Wire(
        "no finish, nothing open",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"All of it."},"logprobs":null,"finish_reason":null}]}
        """,
        text="All of it.",
        note="and no [DONE]",
    ),
    Wire(
        "no finish, nothing open",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a\"}"}}]},"logprobs":null,"finish_reason":null}]}

        data: [DONE]
        """,
        phase="commentary",
        calls=[("call_a", '{"key":"a"}')],
        note="whole calls",
    ),
    Wire(
        "no finish, a call open",
        r"""
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":"{\"key\":\"a"}}]},"logprobs":null,"finish_reason":null}]}

        data: [DONE]
        """,
        fails=("provider_stream", True),
    ),
    Wire(
        "no finish, a call open",
        """
        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":"I look."},"logprobs":null,"finish_reason":null}]}

        data: {"id":"chatcmpl-B9MB","object":"chat.completion.chunk","created":1764500000,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"lookup","arguments":""}}]},"logprobs":null,"finish_reason":null}]}
        """,
        text="I look.",
        fails=("provider_stream", True),
        note="before its arguments",
    ),
)


@labelled(TABLE)
async def test_a_stream_is_heard_as_it_was_meant(wire: Wire, cutting: str) -> None:
    await check("chat", wire, cutting)


def test_every_feature_is_in_the_table_or_said_to_be_missing() -> None:
    check_complete(TABLE, __doc__)
