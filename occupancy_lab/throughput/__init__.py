"""How long a launch takes, before it is launched."""
