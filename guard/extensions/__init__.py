"""Extensions: graph memories, propagation and agent frameworks."""
