"""Timing of alternatives and facts about the machine."""
