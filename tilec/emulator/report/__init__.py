"""What a run did, line by line, and when it would have done it on an H200: a model of time."""
