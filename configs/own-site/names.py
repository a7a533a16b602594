"""The help desk's users and groups, and names for new groups, one a line: python names.py users|groups|new."""

import sys

COLOURS = ("black", "blue", "green", "red", "white", "yellow")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
MONTHS = ("March", "April", "May", "June", "August")
NAMES = {
    "users": [f"{colour}{number}" for colour in COLOURS for number in range(10)],
    "groups": [f"{day} {number}" for day in DAYS for number in range(10)],
    "new": [f"{month} {number}" for month in MONTHS for number in range(10)],
}

if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in NAMES[sys.argv[1]])
