"""What must not change: frozen outcomes, and the commands that freeze them anew."""
