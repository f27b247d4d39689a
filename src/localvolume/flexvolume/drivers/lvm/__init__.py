"""The FlexVolume driver of logical volumes."""
