# bot.py
from changeover_worker import Agent, App, tool


@tool(effect="pure")
async def weather(city: str) -> str:
    """Say what the weather is like in a city."""
    return f"22 °C and sunny in {city}"


app = App(
    models={"main": "openai:gpt-5-mini"},
    agents=[Agent("assistant", model="main", instructions="Be brief.", tools=[weather])],
)
