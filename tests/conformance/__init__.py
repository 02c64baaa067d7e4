"""What every stack must do: `make conformance STACK=…`, on the cluster of the inventory."""
