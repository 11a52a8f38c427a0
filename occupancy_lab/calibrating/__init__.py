"""Finding the constants of the throughput model on the GPU at hand."""
