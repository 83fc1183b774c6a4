"""Commands for the person on call: they ask running servers over the control API."""
