"""openai-python, as its users write it."""

import asyncio
import json
import os

import openai

client = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}},
            "required": ["city"],
        },
    },
}
ASK = [{"role": "user", "content": "Name a colour."}]
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 12}


def chat():
    whole = client.chat.completions.create(messages=ASK, **GREEDY)
    parts = client.chat.completions.create(
        messages=ASK, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    text, usage = "", None
    for part in parts:
        text += "".join(choice.delta.content or "" for choice in part.choices)
        usage = part.usage or usage
    assert text == whole.choices[0].message.content
    assert usage.completion_tokens == whole.usage.completion_tokens == 12
    assert whole.choices[0].finish_reason == "length"


def logprobs():
    answer = client.chat.completions.create(messages=ASK, logprobs=True, top_logprobs=3, **GREEDY)
    content = answer.choices[0].logprobs.content
    assert len(content) == 12
    assert all(len(one.top_logprobs) == 3 for one in content)


def tools():
    asked = {"messages": ASK, "tools": [TOOL], **GREEDY, "max_tokens": 60}
    answer = client.chat.completions.create(tool_choice="required", **asked)
    (call,) = answer.choices[0].message.tool_calls[:1]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in {"Paris", "Oslo"}
    with client.chat.completions.stream(tool_choice="required", **asked) as stream:
        final = stream.get_final_completion()
    again = final.choices[0].message.tool_calls[0]
    assert again.function.arguments == call.function.arguments


def form():
    import pydantic

    class Colour(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        is_warm: bool

    answer = client.chat.completions.parse(
        messages=ASK, response_format=Colour, **{**GREEDY, "max_tokens": 60}
    )
    assert isinstance(answer.choices[0].message.parsed, Colour)


def completions():
    answer = client.completions.create(prompt=["One, two,", "A, B,"], n=1, **GREEDY)
    assert [one.index for one in answer.choices] == [0, 1]
    assert all(one.text for one in answer.choices)


def embeddings():
    found = client.embeddings.create(model=MODEL, input=["a cat", "a dog"])
    plain = client.embeddings.create(model=MODEL, input="a cat", encoding_format="float")
    assert [one.index for one in found.data] == [0, 1]
    assert len(found.data[0].embedding) == len(plain.data[0].embedding) > 100
    pairs = zip(found.data[0].embedding, plain.data[0].embedding, strict=True)
    assert max(abs(a - b) for a, b in pairs) < 1e-6


def responses():
    first = client.responses.create(model=MODEL, input="Name a colour.", max_output_tokens=12)
    assert first.output_text
    second = client.responses.create(
        model=MODEL, input="And another.", previous_response_id=first.id, max_output_tokens=12
    )
    assert second.output_text
    text, kinds = "", []
    with client.responses.stream(
        model=MODEL, input="Name a colour.", max_output_tokens=12, temperature=0
    ) as stream:
        for event in stream:
            kinds.append(event.type)
            text += event.delta if event.type == "response.output_text.delta" else ""
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.incomplete"  # cut by max_output_tokens
    assert text == event.response.output_text


def errors():
    for wrong, expected in (
        ({"model": "nobody"}, openai.NotFoundError),
        ({"temperature": 9.0}, openai.BadRequestError),
        ({"max_tokens": 10**6}, openai.BadRequestError),
    ):
        try:
            client.chat.completions.create(messages=ASK, **{**GREEDY, **wrong})
        except expected as error:
            assert error.body["message"]
        else:
            raise AssertionError(wrong)


async def many():
    async with openai.AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="none") as remote:
        answers = await asyncio.gather(
            *(remote.chat.completions.create(messages=ASK, **GREEDY) for _ in range(16))
        )
    assert len({one.choices[0].message.content for one in answers}) == 1


for step in (chat, logprobs, tools, form, completions, embeddings, responses, errors):
    step()
    print("ok", step.__name__, flush=True)
asyncio.run(many())
print("ok many")
