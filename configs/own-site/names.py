"""The help desk's users and groups, and names for new groups, one a line: python names.py users|groups|new."""

import sys

COLOURS = ("black", "blue", "green", "red", "white", "yellow")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "March", "April", "May", "June", "July", "August", "September", "October", "November")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "ten")
SHAPES = ("circle", "triangle", "rectangle", "square", "box", "button", "item", "list")
NAMES = {
    "users": [f"{colour}-{month}" for colour in COLOURS for month in MONTHS],
    "groups": [f"{day}-{number}" for day in DAYS for number in NUMBERS],
    "new": [f"{shape}-{number}" for shape in SHAPES for number in NUMBERS],
}

if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in NAMES[sys.argv[1]])
