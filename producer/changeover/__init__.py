"""What applications import."""
