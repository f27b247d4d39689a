"""How fast pods may read from and write to volumes, as VolumeAttributesClasses say."""
