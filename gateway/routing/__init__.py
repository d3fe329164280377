"""Facts about a request -> a plan: ordered attempts, each with its reason. Pure and synchronous; sends nothing."""
