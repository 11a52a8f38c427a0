"""What a launch does, worked out from its compiled texts and its arguments."""
