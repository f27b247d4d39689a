"""The node's side of FlexVolume: what the kubelet asks the driver's client, done by the agent."""
