"""A chat gateway for Telegram: no conversation lock, no buffer, no retry queue, any number of
replicas.

    TELEGRAM_SECRET=... uvicorn --app-dir examples gateway:api --port 8000

Telegram brings an update again until it is answered with 2xx, to whichever replica. A message's
id is its own, so each repeat ends as a duplicate, also one whose first answer was lost.
"""

from __future__ import annotations

import hmac
import logging
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response

from changeover import Busy, Client, Debounce, Ending, NotDurable, RequestError, StoreUnavailable

SECRET = os.environ["TELEGRAM_SECRET"].encode()  # the secret_token of setWebhook
client = Client()


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    """Connect before the first update, and close behind the last."""
    async with client:
        yield


api = FastAPI(lifespan=lifespan, openapi_url=None)


@api.post("/telegram")
async def webhook(request: Request) -> Response:
    """Take one update."""
    told = request.headers.get("X-Telegram-Bot-Api-Secret-Token", "")
    if not hmac.compare_digest(told.encode(), SECRET):
        return Response(status_code=403)
    update = await request.json()
    try:
        await take(update)
    except Busy as busy:  # 64 unread messages, or Redis is nearly full: let Telegram come back
        retry_after = math.ceil(busy.retry_after.total_seconds())
        return Response(status_code=429, headers={"Retry-After": str(retry_after)})
    except (StoreUnavailable, NotDurable):  # perhaps accepted: the repeat has the same id
        return Response(status_code=503)
    except RequestError as refused:  # a repeat would be refused as well
        logging.warning("update %s was refused: %s", update.get("update_id"), refused)
    return Response(status_code=202)


async def take(update: dict[str, Any]) -> None:
    """Do what a message asks for; safe to repeat."""
    message = update.get("message") or update.get("edited_message") or {}
    text = message.get("text")
    if not text:  # a sticker, somebody has joined
        return
    chat = message["chat"]["id"]
    session, name = f"telegram:{chat}", f"telegram:{chat}:{message['message_id']}"
    if text == "/stop":
        await client.interrupt(session, reason="/stop", id=name)
        return
    if "edit_date" in message:
        found = await client.cancel(session, name)
        if found.answer == "unknown":  # the edit came first, and takes its message's place
            if message["edit_date"] - message["date"] > 23 * 3600:
                return  # or what it edits is forgotten
        elif found.answer == "cancelled" or found.ending is Ending.CANCELLED:
            name = f"{name}:{message['edit_date']}"
        else:
            return  # it is being answered, or was
    await client.submit(
        session,
        text,
        id=name,
        policy=Debounce("1.5s", max_wait="8s"),  # three quick messages make one turn
        reply_to="telegram",
        context={"chat": str(chat)},
    )
