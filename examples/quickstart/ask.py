# ask.py
import asyncio

from changeover import Client, Delta


async def main() -> None:
    async with Client() as client:
        async for event in client.stream("telegram:42", "Oslo today?"):
            if isinstance(event, Delta):
                print(event.text, end="", flush=True)


asyncio.run(main())
