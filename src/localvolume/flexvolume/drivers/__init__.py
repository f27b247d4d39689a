"""What a FlexVolume volume can be: a logical volume, a directory, or nothing at all."""
