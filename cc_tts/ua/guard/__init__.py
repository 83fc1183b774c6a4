"""The guards in front of PJSIP: they answer or drop requests and responses that PJSIP must not see."""
