"""Make, size, grow, measure and remove one volume inside a pool; knows nothing of Kubernetes."""
