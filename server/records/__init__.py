"""What is kept of calls, when the operator wants it: their sound, and what was said."""
