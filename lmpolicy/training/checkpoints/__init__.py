"""What is kept of a training, and how it goes on from there."""
