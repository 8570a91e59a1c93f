"""What Python users import."""
