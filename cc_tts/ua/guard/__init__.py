"""The guards keep requests and responses from PJSIP that it must not see, and answer them."""
