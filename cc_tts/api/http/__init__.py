"""Every request passes these modules: connections, tokens, bodies, problem details. They make the OpenAPI document too."""
