"""Task types: which of them a message asks for. The only way in is `classifier.Classifier`; no I/O but one file."""
