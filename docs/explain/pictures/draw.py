"""Draw the pictures of the pages beside: ``python docs/explain/pictures/draw.py``.

They have no background, and colours that are legible on a light and on a dark page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

GREY, BLUE, ORANGE, GREEN = "#767b84", "#3584d4", "#d06a1b", "#2f9461"
CELL, GAP, HEIGHT = 64, 40, 34
LEFT = 118


@dataclass
class Picture:
    """An SVG that grows by shapes."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, text: str, colour: str = GREY, anchor: str = "middle"
    ) -> None:
        """Write a line of text."""
        self.parts.append(
            f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{text}</text>'
        )

    def box(self, x: float, y: float, text: str, colour: str, *, dashed: bool = False) -> None:
        """Draw a row of a buffer."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{CELL}" height="{HEIGHT}" rx="4" fill="{colour}" '
            f'fill-opacity="0.14" stroke="{colour}" stroke-width="1.5"{dash}/>'
        )
        self.text(x + CELL / 2, y + 22, text, colour)

    def step(self, x: float, y: float, text: str) -> None:
        """Draw a step."""
        self.parts.append(
            f'<circle cx="{x}" cy="{y}" r="20" fill="none" stroke="{GREY}" stroke-width="1.5"/>'
        )
        self.text(x, y + 5, text)

    def arrow(self, *points: tuple[float, float], colour: str = GREY) -> None:
        """Draw an arrow, through a point that bends it if there are three."""
        (x, y), *rest = points
        path = f"M{x} {y} " + ("Q" if len(rest) == 2 else "L")
        path += " ".join(f"{a} {b}" for a, b in rest)
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" '
            f'marker-end="url(#{colour[1:]})"/>'
        )

    def write(self, name: str) -> None:
        """Write the file."""
        heads = "".join(
            f'<marker id="{c[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{c}"/></marker>'
            for c in (GREY, BLUE, ORANGE, GREEN)
        )
        text = "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'role="img" font-family="system-ui, sans-serif" font-size="15">',
                f"<title>{self.title}</title>",
                f"<defs>{heads}</defs>",
                *self.parts,
                "</svg>\n",
            ]
        )
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")


def column(place: int) -> float:
    """The left side of the box at a place on the time line."""
    return LEFT + place * (CELL + GAP)


def middle(place: float) -> float:
    """The middle of a box, or between two."""
    return (
        column(place) + CELL / 2
        if isinstance(place, int)
        else LEFT + place * (CELL + GAP) + CELL / 2
    )


def scan_state() -> None:
    """Draw a loop with a sequence and a state."""
    p = Picture(660, 250, "Four steps of a loop with a sequence and a state")
    p.text(4, 42, "sequence r", GREEN, "start")
    p.text(4, 212, "state v", BLUE, "start")
    p.text(4, 125, "steps", GREY, "start")
    for t in range(4):
        x = middle(t + 1)
        p.box(column(t + 1), 20, f"r[{t}]", GREEN)
        p.step(x, 120, f"t={t}")
        p.arrow((x, 20 + HEIGHT), (x, 98), colour=GREEN)
        p.arrow((middle(t) + 8, 190), (x - 15, 137), colour=BLUE)
        p.arrow((x, 140), (x, 188), colour=ORANGE)
    p.box(column(0), 190, "start", BLUE, dashed=True)
    for t in range(4):
        p.box(column(t + 1), 190, f"v[{t}]", BLUE)
    p.text(LEFT, 244, "the buffer of v: n + 1 rows", GREY, "start")
    p.write("scan_state.svg")


def taps() -> None:
    """Draw a state with two taps."""
    p = Picture(660, 200, "A state with the taps -1 and -2")
    p.text(4, 42, "steps", GREY, "start")
    p.text(4, 152, "state y", BLUE, "start")
    for t in range(3):
        x = middle(t + 2)
        p.step(x, 36, f"t={t}")
        p.arrow((middle(t) + 12, 130), (middle(t) + 30, 62), (x - 22, 40), colour=BLUE)
        p.arrow((middle(t + 1) + 10, 130), (x - 15, 53), colour=GREEN)
        p.arrow((x, 56), (x, 128), colour=ORANGE)
    p.box(column(0), 130, "y[-2]", BLUE, dashed=True)
    p.box(column(1), 130, "y[-1]", BLUE, dashed=True)
    for t in range(3):
        p.box(column(t + 2), 130, f"y[{t}]", BLUE)
    p.text(LEFT, 188, "initial rows", GREY, "start")
    p.text(column(2), 188, "one row for each step", GREY, "start")
    p.text(653, 62, "reads t-2", BLUE, "end")
    p.text(653, 84, "reads t-1", GREEN, "end")
    p.text(653, 106, "writes", ORANGE, "end")
    p.write("taps.svg")


def mit_mot() -> None:
    """Draw the gradient of a loop with a mit_mot."""
    p = Picture(660, 232, "The gradient of a loop: steps run from the last row to the first")
    p.text(4, 42, "from after", GREEN, "start")
    p.text(4, 60, "the loop", GREEN, "start")
    p.text(4, 102, "mit_mot", BLUE, "start")
    p.text(4, 175, "steps", GREY, "start")
    for t in range(5):
        name = f"dv[{t - 1}]" if t else "dstart"
        p.box(column(t), 80, name, BLUE, dashed=not t)
        p.arrow((middle(t), 32), (middle(t), 78), colour=GREEN)
    for t in range(4):
        x = middle(t + 1) - (CELL + GAP) / 2
        p.step(x, 170, f"t={t}")
        p.arrow((middle(t + 1) - 4, 80 + HEIGHT), (x + 13, 153), colour=BLUE)
        p.arrow((x - 13, 153), (middle(t) + 6, 80 + HEIGHT + 2), colour=ORANGE)
        if t:
            p.arrow((x - 21, 170), (x - CELL - GAP + 22, 170), colour=GREY)
    p.text(LEFT, 222, "step t reads row t, and adds to row t-1 what belongs there", GREY, "start")
    p.write("mit_mot.svg")


def traced_loop() -> None:
    """Draw a TracedLoop."""
    p = Picture(660, 210, "A TracedLoop: a state and its trace")
    p.text(4, 50, "state", BLUE, "start")
    p.text(4, 152, "trace", GREEN, "start")
    for t in range(5):
        p.box(column(t), 28, ("start", "v", "v", "v", "last")[t], BLUE, dashed=not t)
        p.box(column(t), 130, f"[{t}]", GREEN)
        p.arrow((middle(t), 28 + HEIGHT), (middle(t), 128), colour=GREEN)
        if t:
            p.arrow((column(t - 1) + CELL, 45), (column(t) - 2, 45), colour=ORANGE)
            p.text(column(t) - GAP / 2, 20, "step", GREY)
    p.text(
        4,
        196,
        "row 0 of the trace is the initial value; rows are kept only if something reads them",
        GREY,
        "start",
    )
    p.write("traced_loop.svg")


if __name__ == "__main__":
    for draw in (scan_state, taps, mit_mot, traced_loop):
        draw()
