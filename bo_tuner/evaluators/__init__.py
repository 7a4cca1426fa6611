"""What a trial costs time on: a live GPU or a recorded table."""
