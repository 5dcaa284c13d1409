"""Pages that people get after the marking: feedback for a student, and a report of the class for the instructor."""
