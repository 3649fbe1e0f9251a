"""The operator. Its place is kept here; it arrives with the custom resource on Kubernetes."""
