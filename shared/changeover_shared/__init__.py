"""The protocol and the store, shared by producers and workers."""
