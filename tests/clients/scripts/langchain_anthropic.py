"""LangChain with langchain-anthropic: invoke, stream, tools."""

import os
import sys

# this file is named as what it imports is
sys.path.pop(0)

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

URL = os.environ["BASE_URL"].removesuffix("/v1")
# drawn at random, an argument is now and then longer than max_tokens, and the call is cut
chat = ChatAnthropic(
    model=os.environ["MODEL"], base_url=URL, api_key="none", max_tokens=60, temperature=0
)


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


whole = chat.invoke([("system", "Be brief."), ("human", "Name a colour.")])
assert whole.content
assert whole.usage_metadata["output_tokens"] > 0
parts = list(chat.stream("Name a colour."))
assert "".join(part.text if isinstance(part.text, str) else part.text() for part in parts)
print("ok invoke and stream")
asked = HumanMessage("How is it in Oslo?")
called = chat.bind_tools([weather], tool_choice="weather").invoke([asked])
assert called.tool_calls[0]["name"] == "weather"
assert isinstance(called.tool_calls[0]["args"]["city"], str)
answer = ToolMessage("rain", tool_call_id=called.tool_calls[0]["id"])
again = chat.invoke([asked, called, answer])
assert again.content
print("ok tools")
