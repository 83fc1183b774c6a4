"""The layers that every request passes: connections, tokens, bodies, problem documents. Also the OpenAPI document."""
