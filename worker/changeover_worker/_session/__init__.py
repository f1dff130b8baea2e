"""One held session: from its grant, through its turns, to the moment when it is let go."""
