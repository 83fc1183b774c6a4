"""The audio of calls over WebSockets: those that clients open, and those that the server opens for a route."""
