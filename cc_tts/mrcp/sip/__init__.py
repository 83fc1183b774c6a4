"""The SIP server of the MRCP process: transports, transactions, dialogs, session descriptions."""
