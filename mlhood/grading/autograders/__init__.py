"""autograders."""
