"""graph_drawing."""
