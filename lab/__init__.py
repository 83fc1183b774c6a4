"""What tests and benches start: servers, workers, callers, peers, and a network between them. It imports neither."""
