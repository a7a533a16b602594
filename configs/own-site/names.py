"""The help desk's users, groups and tickets, and names for new groups: python names.py users|groups|tickets|new."""

import sys

COLOURS = ("black", "blue", "green", "red", "white", "yellow")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
FAULTS = ("printer", "screen", "network", "password")
MONTHS = ("January", "March", "April", "May", "June", "July", "August", "September", "October", "November")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "ten")
SHAPES = ("circle", "triangle", "rectangle", "square", "box", "button", "item", "list")
NAMES = {
    "users": [f"{colour}-{month}" for colour in COLOURS for month in MONTHS],
    "groups": [f"{day}-{number}" for day in DAYS for number in NUMBERS],
    "tickets": [f"{fault}-{month}" for fault in FAULTS for month in MONTHS],
    "new": [f"{shape}-{number}" for shape in SHAPES for number in NUMBERS],
}

if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in NAMES[sys.argv[1]])
