"""The audio of calls over WebSockets, opened by clients, or by the server for a route."""
