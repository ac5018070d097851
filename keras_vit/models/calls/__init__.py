"""What models check when they are called, and what they restore after an error."""
