"""Models that run in the guard: ONNX classifiers of calls and of text."""
