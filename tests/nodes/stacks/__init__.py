"""Tests of what one stack puts on nodes."""

#: Variables of stacks' roles that these tests read, besides those that move ports.
VARIABLES = ["spark_worker_cores"]
