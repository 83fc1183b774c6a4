"""The scheduling of the engine, which needs no PyTorch."""
