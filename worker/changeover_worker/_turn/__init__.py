"""The turn machine: pure decisions. What happened goes in, the draft of one commit comes out."""
