"""What all Objects have in common."""
