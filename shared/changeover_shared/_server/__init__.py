"""The server: how it is reached, judged and, for one machine, started."""
