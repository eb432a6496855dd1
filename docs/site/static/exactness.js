/* Draws the figure of exactness.html from the numbers that stand in the page. */
"use strict";

const figure = { width: 640, height: 360, left: 56, right: 12, top: 12, bottom: 56, least: -9, most: 1 };

function make(parent, kind, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return parent.appendChild(element);
}

/* Positions are half octaves, errors powers of ten. */
function across(step, steps) {
    return figure.left + (step / steps) * (figure.width - figure.left - figure.right);
}

function down(error) {
    const power = Math.max(figure.least, Math.log10(error || Number.MIN_VALUE));
    return figure.top + ((figure.most - power) / (figure.most - figure.least)) * (figure.height - figure.top - figure.bottom);
}

function drawAxes(svg, steps) {
    for (let power = figure.least; power <= figure.most; power++) {
        const y = down(10 ** power);
        make(svg, "line", { x1: figure.left, x2: figure.width - figure.right, y1: y, y2: y, class: "grid" });
        make(svg, "text", { x: figure.left - 6, y: y + 4, "text-anchor": "end" }, `1e${power}`);
    }
    for (let step = 0; step <= steps; step += 10) {
        make(svg, "text", { x: across(step, steps), y: figure.height - figure.bottom + 26, "text-anchor": "middle" }, `2^${step / 2}`);
    }
    const middle = (figure.left + figure.width - figure.right) / 2;
    make(svg, "text", { x: middle, y: figure.height - 4, "text-anchor": "middle" }, "position");
}

function drawLine(svg, errors, steps, name) {
    const points = errors.map((error, step) => `${across(step + 0.5, steps)},${down(error)}`);
    make(svg, "polyline", { points: points.join(" "), class: `line ${name}` });
}

function control(parent, label, element, attributes) {
    const row = parent.appendChild(document.createElement("label"));
    row.append(label);
    Object.assign(element, attributes);
    return row.appendChild(element);
}

function start(root, data) {
    const { steps, tables } = data;
    const base = control(root, "base ", document.createElement("select"), {});
    for (const table of tables) base.add(new Option(table.base));
    const pair = control(root, "angle i ", document.createElement("input"), { type: "range", min: 0, max: tables[0].theta.length - 1, value: 1 });
    const place = control(root, "position ", document.createElement("input"), { type: "range", min: 0, max: steps - 1, value: 40 });
    const says = root.appendChild(document.createElement("p"));
    says.setAttribute("aria-live", "polite");
    const svg = make(root, "svg", { viewBox: `0 0 ${figure.width} ${figure.height}`, role: "img" });

    function draw() {
        const table = tables[base.selectedIndex];
        const [i, step] = [Number(pair.value), Number(place.value)];
        svg.replaceChildren();
        drawAxes(svg, steps);
        drawLine(svg, table.float32[i], steps, "float32");
        drawLine(svg, table.copes[i], steps, "copes");
        const x = across(step + 0.5, steps);
        make(svg, "line", { x1: x, x2: x, y1: figure.top, y2: figure.height - figure.bottom, class: "place" });
        const position = Math.round(2 ** (step / 2)).toLocaleString("en");
        says.innerHTML = `Angle ${i} turns ${table.theta[i]} radians a token. From position ${position} on it is off by up to ` +
            `<b class="float32">${table.float32[i][step]} radians as a float32 product</b> and ` +
            `<b class="copes">${table.copes[i][step]} by copes</b>.`;
    }
    for (const input of [base, pair, place]) input.addEventListener("input", draw);
    draw();
}

const root = document.getElementById("exactness");
if (root) start(root, JSON.parse(document.getElementById("exactness-data").textContent));
