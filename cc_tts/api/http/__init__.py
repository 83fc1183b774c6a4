"""What every request passes: connections, tokens, bodies, problem details; and the OpenAPI document."""
