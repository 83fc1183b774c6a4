"""Neural voices on the CPU, by onnxruntime."""
