"""LiteLLM: both of its ways to such a server, streams, tools, its own names of errors."""

import os

import litellm

BASE, MODEL = os.environ["BASE_URL"], os.environ["MODEL"]
ASK = [{"role": "user", "content": "Name a colour."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
for provider in ("openai", "hosted_vllm"):
    options = {"model": f"{provider}/{MODEL}", "api_base": BASE, "api_key": "none"}
    asked = {**options, "messages": ASK, "temperature": 0, "max_tokens": 12}
    whole = litellm.completion(**asked).choices[0].message.content
    parts = litellm.completion(**asked, stream=True)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole
    forced = {"type": "function", "function": {"name": "weather"}}
    called = litellm.completion(**{**asked, "max_tokens": 60}, tools=[TOOL], tool_choice=forced)
    assert called.choices[0].message.tool_calls[0].function.name == "weather"
    try:
        litellm.completion(**{**asked, "messages": [{"role": "user", "content": "a b " * 20_000}]})
    except litellm.ContextWindowExceededError:
        pass
    else:
        raise AssertionError("a prompt that is too long is taken")
    print("ok", provider)
vectors = litellm.embedding(
    model=f"openai/{MODEL}", input=["a cat", "a dog"], api_base=BASE, api_key="none"
)
assert len(vectors.data) == 2
print("ok embedding")
