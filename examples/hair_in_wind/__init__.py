"""Hot smoke rises from a ball and rolls."""
