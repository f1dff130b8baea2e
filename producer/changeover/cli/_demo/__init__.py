"""`changeover demo`: real processes, real signals, and what Redis holds afterwards."""

from changeover.cli._demo._command import demo

__all__ = ["demo"]
