"""Runs one streamed request: opens it, hands its deltas on, closes it whatever happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from changeover_worker._models.failures import foreign_failure, stream_failure
from changeover_worker._models.model import Emit, ModelDelta, ModelError, ModelResponse

Event = Mapping[str, Any]
"""One event of a stream, as the JSON that came."""


class Broken(Exception):
    """A provider reported a failure inside its stream, as one of its events."""

    def __init__(self, error: object) -> None:
        super().__init__()
        self.error = error


class Assembly(Protocol):
    """What a dialect makes of a stream's events."""

    def take(self, event: Event) -> Iterable[ModelDelta]:
        """Take one event; raises `Broken` if it reports a failure."""
        ...

    def response(self) -> ModelResponse:
        """Return the whole; raises `ModelError` if it is not whole."""
        ...


class Ear:
    """Listens to one provider. Only `ModelError` and what `emit` raises leave it."""

    def __init__(self, name: str, sdk: Any, secret: str) -> None:
        self._name = name
        self._sdk = sdk
        self._secret = secret

    async def listen(
        self, ask: Callable[[], Awaitable[Any]], assembly: Assembly, emit: Emit
    ) -> ModelResponse:
        """Send the request with `ask`, emit while it streams, and return the whole.

        The HTTP response is closed when this returns, raises or is cancelled.
        """
        async with aclosing(self._events(ask)) as events:
            async for event in events:
                for delta in self._taken(assembly, event):
                    await emit(delta)
        return assembly.response()

    async def _events(self, ask: Callable[[], Awaitable[Any]]) -> AsyncGenerator[Event, None]:
        try:
            stream = await ask()
        except Exception as error:
            raise self._failure(error, started=False) from None
        async with stream:
            incoming = aiter(stream)
            while True:
                try:
                    event = (await anext(incoming)).to_dict(warnings=False)
                except StopAsyncIteration:
                    return
                except Exception as error:
                    raise self._failure(error, started=True) from None
                yield event

    def _taken(self, assembly: Assembly, event: Event) -> list[ModelDelta]:
        try:
            return list(assembly.take(event))
        except Broken as broken:
            raise stream_failure(self._name, broken.error, secret=self._secret) from None
        except Exception as error:
            raise self._failure(error, started=True) from None

    def _failure(self, error: Exception, *, started: bool) -> ModelError:
        # Raised `from None`: a provider's own text may quote the key that it was sent.
        return foreign_failure(self._name, error, self._sdk, started=started, secret=self._secret)
