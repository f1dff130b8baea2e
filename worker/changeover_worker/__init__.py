"""What agent authors import."""
