"""What a run showed, what it is compared with, and what that says."""
