"""Events to web applications by HTTP, as Standard Webhooks: signed, in order per call, repeated until they are taken."""
