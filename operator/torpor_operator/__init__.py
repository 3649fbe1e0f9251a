"""The operator: it turns one InferenceDeployment into pods, and keeps what is wanted true."""
