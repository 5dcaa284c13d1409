"""A fused kernel in Pallas: attention by blocks, the Triton IR it becomes, and the memory traffic that it saves."""
