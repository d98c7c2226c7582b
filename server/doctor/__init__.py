"""``duologue doctor``: what keeps calls from working, and what to do about it."""

from server.doctor.command import add_doctor_command

__all__ = ["add_doctor_command"]
