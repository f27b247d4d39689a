"""Volumes at the kubelet's paths: what is to be mounted there, and the mounting. No memory."""
