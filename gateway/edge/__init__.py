"""HTTP in and out: the one place that knows a web server. Everything behind it sees an `Exchange`."""
