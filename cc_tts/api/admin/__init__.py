"""The commands of operators to the server process: its status, its tenants, a reload, its log levels."""
