"""What keeps requests and responses from PJSIP that it must not see, and answers them."""
