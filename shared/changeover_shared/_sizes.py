"""How many bytes are, in words for people."""


def show_size(value: int) -> str:
    """Say a number of bytes the way people write it: `512 B`, `12.5 KiB`, `972 MiB`, `1.5 GiB`."""
    shown, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if shown < 1024 or unit == "GiB":
            break
        shown /= 1024
    return f"{shown:.0f} {unit}" if shown >= 100 else f"{shown:.3g} {unit}"
