"""From a graph to a scene for `mlhood.graph_drawing`: which boxes there are, what they say, and how they look."""
