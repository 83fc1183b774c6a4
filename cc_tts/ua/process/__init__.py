"""The processes of the user agent, without what they carry."""
