"""The figure of exactness.md: the errors of angles, of what copes computes while the pages are built."""

import json

import copes
import mpmath
import numpy as np
from docutils import nodes
from docutils.parsers.rst import Directive

ANGLES = 32  # of a head of 64 features
BASES = (10000, 500000)
STEPS = 62  # half octaves of positions below 2^31
SAMPLES = 64  # positions of a step
BITS = 256


def positions():
    """(STEPS, SAMPLES), at random in each step."""
    edges = 2 ** (np.arange(STEPS + 1) / 2)
    drawn = np.random.default_rng(0).uniform(edges[:-1, None], edges[1:, None], (STEPS, SAMPLES))
    return np.minimum(drawn.astype(np.int64), 2**31 - 1)


def exact_angles(places, theta):
    """places * theta in radians, from -pi to pi, through integers: of a turn, 2^-BITS at most is lost in 1 / 2 pi."""
    with mpmath.workprec(BITS + 64):
        turns = int(mpmath.floor(mpmath.ldexp(1 / (2 * mpmath.pi), BITS)))
    angles = np.empty((places.size, theta.size))
    for column, (numerator, denominator) in enumerate(value.as_integer_ratio() for value in theta.tolist()):
        for row, place in enumerate(places.ravel().tolist()):
            phase = place * numerator * turns // denominator % 2**BITS
            angles[row, column] = (phase - (phase >> (BITS - 1) << BITS)) / 2.0**BITS * 2 * np.pi
    return angles


def angle_of(o):
    """Of float32 results: each has the cosines, then the sines."""
    cosine, sine = np.split(o.astype(np.float64), 2, axis=-1)
    return np.arctan2(sine, cosine)


def float32_angles(places, theta):
    """Of a RoPE that rounds the product to float32; its sine and cosine are right to the last bit."""
    product = (places.ravel().astype(np.float32)[:, None] * theta).astype(np.float64)
    return angle_of(np.concatenate((np.cos(product), np.sin(product)), axis=-1).astype(np.float32))


def copes_angles(places, theta):
    """Of the pairs (1, 0), turned by copes in float32."""
    x = np.zeros((1, places.size, 1, 2 * theta.size), np.float32)
    x[..., : theta.size] = 1
    return angle_of(copes.lrpe_rotate(x, theta[None], positions=places.ravel())[0, :, 0])


def errors(angles, exact):
    """The largest of each step and angle, as decimal text of three digits."""
    turn = 2 * np.pi
    off = np.abs((angles - exact + np.pi) % turn - np.pi).reshape(STEPS, SAMPLES, ANGLES).max(axis=1)
    return [[float(f"{value:.2e}") for value in column] for column in off.T]


def measure():
    places, tables = positions(), []
    for base in BASES:
        theta = (float(base) ** (-np.arange(ANGLES) / ANGLES)).astype(np.float32)
        exact = exact_angles(places, theta)
        tables.append(
            {
                "base": base,
                "theta": [float(f"{value:.4g}") for value in theta],
                "float32": errors(float32_angles(places, theta), exact),
                "copes": errors(copes_angles(places, theta), exact),
            }
        )
    return {"steps": STEPS, "tables": tables}


class Exactness(Directive):
    """The figure's place in a page; site/static/exactness.js draws it."""

    def run(self):
        data = json.dumps(measure(), separators=(",", ":"))
        html = f'<div id="exactness"></div><script type="application/json" id="exactness-data">{data}</script>'
        return [nodes.raw("", html + "<noscript>The figure is drawn by JavaScript.</noscript>", format="html")]


def setup(app):
    app.add_directive("exactness", Exactness)
    app.add_js_file("exactness.js", loading_method="defer")
