"""Tools: what an author declares, and how one call of it is run."""
