"""What a shell completes of our commands: `localvolume completion`, and the plugin of kubectl."""
