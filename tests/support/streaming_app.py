"""The app of a fleet that always streams: every answer takes seconds, a few words at a time."""

from __future__ import annotations

from changeover_worker import Agent, App
from changeover_worker.testing import ScriptedModel, say

PIECE_S = 0.25
"""How long the model is silent before each piece: the pause that a follower always sees."""
PIECES = 16
TURN_S = PIECE_S * PIECES
_PIECE = "so many words. "

app = App(
    models={
        "talker": ScriptedModel.always(say(_PIECE * PIECES), chunk=len(_PIECE), pause=PIECE_S),
    },
    agents=[Agent("talker", model="talker")],
)
