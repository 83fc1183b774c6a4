"""The thread, the log, the configuration and the objects of PJSIP, as far as no single call has to do with them."""
