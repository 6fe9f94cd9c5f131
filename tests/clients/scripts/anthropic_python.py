"""anthropic-python, as its users write it."""

import os

import anthropic

URL = os.environ["BASE_URL"].removesuffix("/v1")
client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
MODEL = os.environ["MODEL"]
ASK = [{"role": "user", "content": "Name a colour."}]
TOOL = {
    "name": "weather",
    "description": "the weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}},
        "required": ["city"],
    },
}
GREEDY = {"model": MODEL, "max_tokens": 12, "extra_body": {"temperature": 0}}


def messages():
    whole = client.messages.create(messages=ASK, system="Be brief.", **GREEDY)
    with client.messages.stream(messages=ASK, system="Be brief.", **GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.stop_reason == whole.stop_reason


def tools():
    asked = {**GREEDY, "messages": ASK, "tools": [TOOL], "max_tokens": 80}
    forced = {"type": "tool", "name": "weather"}
    whole = client.messages.create(tool_choice=forced, **asked)
    call = whole.content[-1]
    assert call.type == "tool_use"
    assert call.input["city"] in {"Paris", "Oslo"}
    assert whole.stop_reason == "tool_use"
    with client.messages.stream(tool_choice=forced, **asked) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    history = [
        *ASK,
        {"role": "assistant", "content": [call.model_dump()]},
        {"role": "user", "content": [result]},
    ]
    again = client.messages.create(**{**asked, "messages": history}, tool_choice={"type": "none"})
    assert again.content


def counting():
    few = client.messages.count_tokens(model=MODEL, messages=ASK, system="Be brief.")
    more = client.messages.count_tokens(model=MODEL, messages=ASK, tools=[TOOL], system="Be brief.")
    assert 0 < few.input_tokens <= more.input_tokens


def errors():
    for wrong, expected in (
        ({"model": "nobody"}, anthropic.NotFoundError),
        ({"max_tokens": 0}, anthropic.BadRequestError),
        ({"messages": []}, anthropic.BadRequestError),
    ):
        try:
            client.messages.create(**{**GREEDY, "messages": ASK, **wrong})
        except expected as error:
            assert error.body["type"] == "error"
        else:
            raise AssertionError(wrong)


for step in (messages, tools, counting, errors):
    step()
    print("ok", step.__name__, flush=True)
