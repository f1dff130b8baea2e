"""What writes the files that are written from other files."""
