"""Every metric name in one file; logs beside them. Fed from finished calls only."""
