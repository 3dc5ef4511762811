"""What is parked, read and put right by a person."""
