"""What is due for FlexVolume volumes and their claims, and why: pure."""
