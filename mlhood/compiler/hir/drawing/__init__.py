"""How a graph becomes a picture: what is said in each box, the layers, the places, the paint."""
