"""Virtual machines that stand for a lab's, made as rough as those that an installer leaves."""
