"""What models check when they are compiled and called."""
