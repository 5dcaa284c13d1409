"""How data moves: loop nests, tilings and their orders, caches, and arrays of processing elements."""
