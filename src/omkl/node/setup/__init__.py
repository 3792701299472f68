"""What sets a network up and changes who is in it: all of it writes files, and reaches no node."""
