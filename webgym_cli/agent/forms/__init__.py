"""What an action, a tool and a reply look like as text."""
