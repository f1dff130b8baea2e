"""The store: every key, every script, and both sides that call them."""
