"""What answers the chats of `gateway.py`: a handler that asks a model, and sends what it said.

    TELEGRAM_TOKEN=... OPENAI_API_KEY=... changeover worker examples.telegram_bot:app

Sending is a step of the turn: it is tried again, its result is kept, and whoever takes the turn
over does not send what was sent. Only when a worker dies while it sends, nobody can ask Telegram
whether it heard: `idempotent` sends again, so an answer comes twice rather than never.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import httpx2

from changeover_worker import App, Turn

TELEGRAM = os.environ.get("TELEGRAM_API", "https://api.telegram.org")
LONGEST = 4096  # characters that Telegram takes in one message


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[httpx2.AsyncClient]:
    """One client for each worker process."""
    base = f"{TELEGRAM}/bot{os.environ['TELEGRAM_TOKEN']}/"
    async with httpx2.AsyncClient(base_url=base) as telegram:
        yield telegram


app = App(models={"main": "openai:gpt-5-mini"}, lifespan=lifespan)


@app.handler("assistant")
async def assistant(turn: Turn[httpx2.AsyncClient]) -> str:
    """Answer a chat."""
    answer = await turn.model(turn.messages, instructions="Be brief.", phase="final_answer")
    text = answer.message.text
    if "telegram" in turn.reply_to:
        for start in range(0, len(text), LONGEST):
            part = {"chat_id": turn.context["chat"], "text": text[start : start + LONGEST]}
            send = partial(post, turn.resources, part)
            await turn.step(f"send from {start}", send, effect="idempotent", retries=8)
    return text


async def post(telegram: httpx2.AsyncClient, message: dict[str, str]) -> int:
    """Send one message; its number in the chat."""
    sent = await telegram.post("sendMessage", json=message)
    sent.raise_for_status()
    return int(sent.json()["result"]["message_id"])
