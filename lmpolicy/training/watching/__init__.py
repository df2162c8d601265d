"""What is logged and shown of a training while it goes on."""
